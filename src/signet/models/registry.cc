#include "signet/models/registry.h"

#include <algorithm>

#include "signet/base/text.h"

namespace signet::models {

Polymorphic<MixerFactory> make_deltanet();
Polymorphic<MixerFactory> make_deltaproduct();
Polymorphic<MixerFactory> make_dense();
Polymorphic<MixerFactory> make_gated_deltanet();
Polymorphic<MixerFactory> make_gated_deltaproduct();
Polymorphic<MixerFactory> make_gla();
Polymorphic<MixerFactory> make_kda();
Polymorphic<MixerFactory> make_lstm();
Polymorphic<MixerFactory> make_mamba();
Polymorphic<MixerFactory> make_mamba2();
Polymorphic<MixerFactory> make_mlstm();
Polymorphic<MixerFactory> make_pd();
Polymorphic<MixerFactory> make_slstm();
Polymorphic<MixerFactory> make_transformer();

const std::vector<ArchitectureEntry>& architectures() {
  static const std::vector<ArchitectureEntry> table = {
      {"deltanet", "DeltaNet", "delta rule with one or more Householder factors per token", make_deltanet},
      {"deltaproduct", "DeltaProduct", "delta rule with two Householder factors per token, or more",
       make_deltaproduct},
      {"gated-deltanet", "Gated DeltaNet", "delta rule with a decay per head", make_gated_deltanet},
      {"gated-deltaproduct", "Gated DeltaProduct", "Householder factors with a decay per head",
       make_gated_deltaproduct},
      {"kda", "KDA", "delta rule with a signed decay per channel of the keys", make_kda},
      {"mamba", "Mamba", "selective scan with a diagonal transition", make_mamba},
      {"gla", "GLA", "gated linear attention, one gate per channel of the keys", make_gla},
      {"mamba2", "Mamba-2", "gated linear attention with one decay per head", make_mamba2},
      {"mlstm", "mLSTM", "matrix memory with an exponential input gate and a normaliser", make_mlstm},
      {"slstm", "sLSTM", "nonlinear recurrence with exponential gates and memory mixing per head",
       make_slstm},
      {"lstm", "LSTM", "the LSTM: nonlinear recurrence with sigmoid gates", make_lstm},
      {"transformer", "Transformer", "causal softmax attention with rotary positions", make_transformer},
      {"dense", "Dense", "a full transition matrix per token", make_dense},
      {"pd", "PD", "a permutation-like matrix times a diagonal per token", make_pd},
  };
  return table;
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const auto& entry : architectures()) names.emplace_back(entry.name);
  return names;
}

bool architecture_exists(const std::string& name) {
  const auto known = architecture_names();
  const auto parts = split(name, '+');
  return std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return std::find(known.begin(), known.end(), part) != known.end();
  });
}

std::string architecture_title(const std::string& name) {
  auto parts = split(name, '+');
  for (auto& part : parts)
    for (const auto& entry : architectures())
      if (part == entry.name) {
        part = entry.title;
        break;
      }
  return join(parts, "+");
}

}  // namespace signet::models
