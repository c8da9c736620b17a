#include "signet/kernels/activation/swiglu_cases.h"
#include "signet/kernels/attention/attention_cases.h"
#include "signet/kernels/delta_rule/delta_rule_cases.h"
#include "signet/kernels/gated_linear/gated_linear_cases.h"
#include "signet/kernels/norm/norm_cases.h"
#include "signet/kernels/selective_scan/selective_scan_cases.h"
#include "signet/kernels/short_conv/short_conv_cases.h"
#include "support/preset_slice.h"

namespace signet::train {
namespace {

TEST(Presets, TwoBlocksMatchFp64) {
  for (const auto& name : preset_names()) {
    if (!name.ends_with("-10m")) continue;
    SCOPED_TRACE(name);
    test::PresetSlice(name, 1100, 2, 19).expect_step({}, Precision::kFp32, 1e-6, 1e-3);
  }
}

template <class List, class Same>
bool among(const List& cases, Same same) {
  return std::any_of(std::begin(cases), std::end(cases), same);
}

// Whether the recurrence of a preset is one of its operator's cases; `state` is what it keeps of a sequence.
bool recurrence_is_a_case(const std::string& architecture, const models::ModelConfig& config,
                          const Shape& state) {
  const auto option = [&](const std::string& key) {
    return std::stoll(io::fields_of(const_cast<models::ModelConfig&>(config)).written(key).value_or("1"));
  };
  if (architecture == "transformer")
    return among(kernels::kAttentionCases,
                 [&](const auto& c) { return c.width == config.width / option("heads"); });
  if (architecture == "mamba")
    return among(kernels::kSelectiveScanCases,
                 [&](const auto& c) { return c.channels == state[1] && c.kStates == state[2]; });
  const int64_t dk = state[2], dv = state[3];
  if (architecture == "gla" || architecture == "mamba2" || architecture == "mlstm") {
    const int64_t rows = architecture == "mlstm" ? (dv + 7) / 8 * 8 : dv;  // of 16 bytes
    return among(kernels::kGatedLinearCases, [&](const auto& c) {
      return c.dk == dk && c.dv == rows && c.channel_gates == (architecture == "gla");
    });
  }
  const int64_t gates = architecture == "kda" ? dk : architecture == "gated-deltanet" ? 1 : 0;
  return among(kernels::kDeltaRuleCases, [&](const auto& c) {
    return c.width == dk && dk == dv && c.factors == option("householders") && c.gate_channels == gates;
  });
}

// What is tested and timed is what is trained.
TEST(Presets, EverySizeIsACaseOfItsOperators) {
  for (const auto& name : preset_names()) {
    SCOPED_TRACE(name);
    ConfigSources sources;
    sources.preset = name, sources.set = {"data.paths=[x]", "data.vocabulary=1100", "model.blocks=1"};
    const models::ModelConfig config = resolve_config(sources).model;
    const models::Model model(config, 1100, 1100);
    const auto states = model.mixer(0).state_shapes(1);
    const std::string architecture = name.substr(0, name.rfind('-'));
    EXPECT_TRUE(recurrence_is_a_case(architecture, config, states[0]));
    for (const auto& state : states)
      if (state.of_inputs && architecture != "transformer") {
        EXPECT_TRUE(among(kernels::kShortConvCases, [&](const auto& c) { return c.channels == state[2]; }))
            << "a convolution of " << state[2] << " channels";
      }
    for (const auto& info : model.parameters().infos()) {
      const int64_t size = info.shape[0];
      if (info.name.ends_with("norm.weight")) {
        EXPECT_TRUE(among(kernels::kNormCases, [&](const auto& c) { return c.width == size; })) << info.name;
      }
      if (info.name.ends_with("mlp.gate.weight")) {
        EXPECT_TRUE(among(kernels::kSwigluCases, [&](const auto& c) {
          return c.width == size && c.layer == info.shape[1];
        })) << size;
      }
    }
  }
}

}  // namespace
}  // namespace signet::train
