// What the verbs about weights share: the options of compile and verify, the network that extract, collapse
// and robust look into, and matrices as JSON or in a file.
#pragma once

#include <string>

#include "signet/analysis/subject.h"
#include "signet/base/rounding.h"
#include "signet/cli/automaton_input.h"
#include "signet/theory/compile.h"

namespace signet::cli {

// --dtype, and the number type of such a name.
void dtype_option(Options& options, std::string& target, const std::string& help);
NumberType number_type_of(const std::string& name);

// The content of a file, or JSON that stands on the command line itself, and what messages call it.
struct MatrixText {
  std::string text, source;
};
// `example` shows the JSON when there is no such file.
MatrixText read_matrix_text(const std::string& subject, const std::string& what, const std::string& example);

class CompileArguments {
 public:
  void define(Options& options);
  NumberType number_type() const { return number_type_of(dtype_); }
  theory::Network compile(const InputAutomaton& input) const;

 private:
  const Options* options_ = nullptr;
  std::string target_ = class_name(theory::Target::kHouseholderProduct), construction_ = "auto",
              dtype_ = "fp32";
  int64_t max_table_ = int64_t{1} << 25, max_layer_states_ = 512, max_codes_ = 1 << 16,
          max_messages_ = int64_t{1} << 20;
};

// A trained run or a compiled network, and the arithmetic that the latter runs in.
class SubjectArguments {
 public:
  void define(Options& options);
  analysis::Subject open() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_, dtype_;
};

}  // namespace signet::cli
