#include "signet/models/registry.h"

namespace signet::models {

std::shared_ptr<MixerFactory> make_deltanet();
std::shared_ptr<MixerFactory> make_deltaproduct();
std::shared_ptr<MixerFactory> make_dense();
std::shared_ptr<MixerFactory> make_gated_deltanet();
std::shared_ptr<MixerFactory> make_gated_deltaproduct();
std::shared_ptr<MixerFactory> make_gla();
std::shared_ptr<MixerFactory> make_kda();
std::shared_ptr<MixerFactory> make_lstm();
std::shared_ptr<MixerFactory> make_mamba();
std::shared_ptr<MixerFactory> make_mamba2();
std::shared_ptr<MixerFactory> make_mlstm();
std::shared_ptr<MixerFactory> make_pd();
std::shared_ptr<MixerFactory> make_slstm();
std::shared_ptr<MixerFactory> make_transformer();

const std::vector<ArchitectureEntry>& architectures() {
  static const std::vector<ArchitectureEntry> table = {
      {"deltanet", "delta rule with one or more Householder factors per token", make_deltanet},
      {"deltaproduct", "delta rule with two Householder factors per token, or more", make_deltaproduct},
      {"gated-deltanet", "delta rule with a decay per head", make_gated_deltanet},
      {"gated-deltaproduct", "Householder factors with a decay per head", make_gated_deltaproduct},
      {"kda", "delta rule with a signed decay per channel of the keys", make_kda},
      {"mamba", "selective scan with a diagonal transition", make_mamba},
      {"gla", "gated linear attention, one gate per channel of the keys", make_gla},
      {"mamba2", "gated linear attention with one decay per head", make_mamba2},
      {"mlstm", "matrix memory with an exponential input gate and a normaliser", make_mlstm},
      {"slstm", "nonlinear recurrence with exponential gates and memory mixing per head", make_slstm},
      {"lstm", "the LSTM: nonlinear recurrence with sigmoid gates", make_lstm},
      {"transformer", "causal softmax attention with rotary positions", make_transformer},
      {"dense", "a full transition matrix per token", make_dense},
      {"pd", "a permutation-like matrix times a diagonal per token", make_pd},
  };
  return table;
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const auto& entry : architectures()) names.emplace_back(entry.name);
  return names;
}

}  // namespace signet::models
