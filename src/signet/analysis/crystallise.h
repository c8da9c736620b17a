// A trained network made exact: right at every length, with the proof. docs/crystallise.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "signet/analysis/extract.h"
#include "signet/theory/compile.h"
#include "signet/theory/network.h"
#include "signet/theory/verify.h"
#include "signet/train/config.h"

namespace signet::analysis {

// A head of the trained network and the exact one that takes its place.
struct CrystalHead {
  std::string name;          // of the trained head
  int32_t components = 0;    // its states
  std::string construction;  // of the exact head
  int32_t dimension = 0;
  // How far the trained states are from a linear image of the exact ones, in the unit of the gap between
  // them: 0 is the same representation in another basis. Of a layer in a linear image: how far a state's
  // image is from its component's centre, at most.
  double residual = 0;
};

struct Crystal {
  theory::Network network;
  bool in_place = false;           // head by head; otherwise compiled from the automaton
  std::string reason;              // why not in place
  std::vector<CrystalHead> heads;  // in place
  // Against the automaton of the task, over the words that are asked about; none without one.
  std::optional<bool> equivalent;
  theory::VerifyResult proof;
};

struct CrystalliseOptions {
  NumberType type = NumberType::kFp32;  // of the proof
  bool in_place = true;                 // try it
};

// Throws kCheckFailed when no automaton was found, or when theory forbids its class of networks.
Crystal crystallise(Subject& subject, const Extraction& extraction, const CrystalliseOptions& options = {});

}  // namespace signet::analysis
