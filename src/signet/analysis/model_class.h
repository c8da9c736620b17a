// Which of theory's classes of networks a model of signet train is.
#pragma once

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

// The class of compiled networks that a model belongs to: Householder products, which hold every automaton,
// where it belongs to none.
theory::NetworkClass class_of(const train::RunConfig& config);

}  // namespace signet::analysis
