// Which of theory's classes of networks a model of signet train is.
#pragma once

#include <optional>
#include <vector>

#include "signet/theory/network_class.h"
#include "signet/train/config.h"

namespace signet::analysis {

struct ModelClass {
  theory::NetworkClass network_class;
  const char* architecture;
  const char* eigenvalues;  // as --eigenvalues takes them; "" where there is no range
};
// The first row of a class is the model to take for it, the first row of a model the class to compile it to.
const std::vector<ModelClass>& model_classes();

// The class of networks that a model is compiled to: its own, or Householder products, which hold every
// automaton, where it belongs to none that can be.
theory::NetworkClass class_of(const train::RunConfig& config);

// The class whose verdict in `analyze` is about a model; none of a Transformer, of full matrices and of
// blocks of different kinds.
std::optional<theory::NetworkClass> analysed_class_of(const train::RunConfig& config);

}  // namespace signet::analysis
