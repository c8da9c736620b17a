// What a model is made of. The options common to all architectures are here; those of one architecture are in
// its mixer's factory. Both are described to the configuration reader as one section, `model`.
#pragma once

#include <string>
#include <vector>

#include "signet/base/eigenvalues.h"
#include "signet/base/polymorphic.h"
#include "signet/io/config_schema.h"

namespace signet::models {

class MixerFactory;

// What the blocks of one architecture are made of.
struct BlockConfig {
  std::string architecture;
  int64_t mlp = -1;                 // hidden width: -1 = 8/3 width rounded up to 256, 0 = none
  std::string mlp_gate = "silu";    // silu (SwiGLU) or gelu (GEGLU)
  Polymorphic<MixerFactory> mixer;  // with the architecture's own options

  void describe(io::Fields& fields);
  int64_t mlp_width(int64_t width) const { return mlp < 0 ? (width * 8 / 3 + 255) / 256 * 256 : mlp; }
};

// `architecture` names the mixer of all blocks, or several, joined by '+', that the blocks take in turn:
// slstm+mlstm with four blocks is slstm, mlstm, slstm, mlstm. The keys of a BlockConfig then lie in a section
// of its name, model.slstm.heads.
struct ModelConfig {
  std::string architecture = "deltanet";
  // [0, 1] as published, or [-1, 1]; empty where there is no range.
  std::vector<double> eigenvalues = {-1, 1};
  int64_t width = 128;
  int64_t blocks = 2;
  std::string norm = "rms";  // of the blocks and before the head: rms, layer
  bool final_norm = true;    // norm before the head
  double norm_eps = 1e-6;
  double embedding_init = 0.02;  // standard deviation
  // normal: N(0, 0.02); linear: U(+-1/sqrt(width)); small: N(0, sqrt(2 / (5 width)))
  std::string head_init = "normal";
  bool tie_embeddings = false;     // the head is the embedding
  std::vector<BlockConfig> kinds;  // one per architecture
  std::vector<size_t> pattern;     // kinds of the first blocks; the others repeat them

  // A configuration with the architecture's defaults (of several: the first one's, for what all share);
  // throws kUsage for an unknown name.
  static ModelConfig for_architecture(const std::string& name);
  void describe(io::Fields& fields);
  const BlockConfig& block(int64_t i) const {
    return kinds[pattern[static_cast<size_t>(i) % pattern.size()]];
  }
  bool has_range() const;              // whether any block has eigenvalues whose range can be chosen
  int64_t max_length() const;          // the most tokens that a state can take in; 0 = any number
  std::string max_length_key() const;  // which key sets it: "model.max_length"; "" without a limit
  EigenvalueRange range() const;       // throws kBadInput for anything else
  void check_range() const;            // that there is one where the architecture has one, and none elsewhere
  std::string range_text() const;      // "[-1,1]", or "" without a range
};

}  // namespace signet::models
