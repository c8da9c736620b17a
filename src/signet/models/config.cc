#include "signet/models/config.h"

#include <fmt/ranges.h>

#include "signet/base/text.h"
#include "signet/models/mixer.h"
#include "signet/models/registry.h"

namespace signet::models {

ModelConfig ModelConfig::for_architecture(const std::string& name) {
  for (const auto& entry : architectures()) {
    if (name != entry.name) continue;
    ModelConfig config;
    config.architecture = name;
    config.mixer = entry.make();
    config.mixer->set_defaults(config);
    if (!config.mixer->has_range()) config.eigenvalues.clear();
    return config;
  }
  fail(ErrorCode::kUsage, "unknown model '{}'{}; there are: {}", name,
       did_you_mean(name, architecture_names()), join(architecture_names(), ", "));
}

void ModelConfig::describe(io::Fields& fields) {
  fields.field_enum("architecture", architecture, "the mixer", architecture_names());
  fields.field("eigenvalues", eigenvalues, "range of the transition's eigenvalues: 0,1 or -1,1", {-1, 1});
  fields.field("width", width, "width of the residual stream", {1, 65536});
  fields.field("blocks", blocks, "blocks", {1, 1024});
  fields.field("mlp", mlp, "hidden width of the SwiGLU; -1 = 8/3 width rounded up to 256, 0 = none",
               {-1, 1 << 20});
  fields.field_enum("norm", norm, "norm of the blocks and before the head", {"rms", "layer"});
  fields.field("final_norm", final_norm, "norm before the head");
  fields.field("norm_eps", norm_eps, "epsilon of the norms", {1e-12, 1});
  fields.field("embedding_init", embedding_init, "standard deviation of the embedding at the start",
               {0, 100});
  fields.field_enum("head_init", head_init,
                    "start of the head: normal = N(0, 0.02), linear = U(+-1/sqrt(width)), small = N(0, "
                    "sqrt(2 / (5 width)))",
                    {"normal", "linear", "small"});
  mixer->describe(fields);
}

EigenvalueRange ModelConfig::range() const {
  if (eigenvalues == std::vector<double>{0, 1}) return EigenvalueRange::kPositive;
  if (eigenvalues == std::vector<double>{-1, 1}) return EigenvalueRange::kSigned;
  bad_input("model.eigenvalues must be 0,1 or -1,1");
}

void ModelConfig::check_range() const {
  if (mixer->has_range()) {
    range();
  } else if (!eigenvalues.empty()) {
    bad_input("model.eigenvalues: {} has no eigenvalues to keep in a range; leave it out", architecture);
  }
}

std::string ModelConfig::range_text() const {
  return eigenvalues.empty() ? "" : fmt::format("[{}]", fmt::join(eigenvalues, ","));
}

}  // namespace signet::models
