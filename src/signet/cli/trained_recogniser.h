// A trained model as a recogniser of words: its newest checkpoint through the recurrent form, the state
// carried from piece to piece.
#pragma once

#include <memory>
#include <string>

#include "signet/theory/recogniser.h"

namespace signet::cli {

// `directory` as written by signet train. Letters are the task's input tokens. A task with two answers
// accepts with the second: the number of ones is odd, the word is in the language. Other tasks have the
// predicted class as output. Classes that are no answer of the task are lost.
std::unique_ptr<theory::Recogniser> load_trained(const std::string& directory);

}  // namespace signet::cli
