#include "signet/cli/verb.h"

namespace signet::cli {

// One declaration and one line per verb, in the order `signet --help` shows them.
std::unique_ptr<Verb> make_demo();
std::unique_ptr<Verb> make_solve();
std::unique_ptr<Verb> make_train();
std::unique_ptr<Verb> make_eval();
std::unique_ptr<Verb> make_report();
std::unique_ptr<Verb> make_list();
std::unique_ptr<Verb> make_watch();
std::unique_ptr<Verb> make_sweep();
std::unique_ptr<Verb> make_reproduce();
std::unique_ptr<Verb> make_tokenizer();
std::unique_ptr<Verb> make_tokenize();
std::unique_ptr<Verb> make_data();
std::unique_ptr<Verb> make_generate();
std::unique_ptr<Verb> make_import();
std::unique_ptr<Verb> make_export();
std::unique_ptr<Verb> make_analyze();
std::unique_ptr<Verb> make_decompose();
std::unique_ptr<Verb> make_compile();
std::unique_ptr<Verb> make_verify();
std::unique_ptr<Verb> make_run();
std::unique_ptr<Verb> make_factor();
std::unique_ptr<Verb> make_extract();
std::unique_ptr<Verb> make_crystallise();
std::unique_ptr<Verb> make_check();
std::unique_ptr<Verb> make_collapse();
std::unique_ptr<Verb> make_robust();
std::unique_ptr<Verb> make_bench();
std::unique_ptr<Verb> make_info();
std::unique_ptr<Verb> make_completion();

const std::vector<VerbEntry>& verbs() {
  static const std::vector<VerbEntry> table = {
      {"demo", "watch two models fail and solve parity; ends with report.html", make_demo, "Begin here"},
      {"solve", "from a language to a trained, exact and proved network", make_solve},
      {"train", "train a model on a task", make_train, "Train and measure"},
      {"eval", "measure a trained model at any length", make_eval},
      {"report", "write one HTML page that compares runs", make_report},
      {"list", "show runs with their state, score and age", make_list},
      {"watch", "plot a run in the terminal while it trains", make_watch},
      {"sweep", "train a grid of models, tasks, learning rates and seeds", make_sweep},
      {"reproduce", "run a published table or figure and compare", make_reproduce},
      {"tokenizer", "make a tokenizer, look into one, or use one", make_tokenizer, "Language models"},
      {"tokenize", "turn text into shards of tokens to train on", make_tokenize},
      {"data", "show what tokenized data holds", make_data},
      {"generate", "let a language model write", make_generate},
      {"import", "take over a checkpoint of fla, Hugging Face or state-spaces", make_import},
      {"export", "write a run as a checkpoint for fla, Hugging Face or state-spaces", make_export},
      {"analyze", "say which networks can recognise a language, and why", make_analyze,
       "Automata and exact networks"},
      {"decompose", "show the Krohn-Rhodes levels of an automaton", make_decompose},
      {"compile", "turn an automaton into the weights of a network", make_compile},
      {"verify", "prove or test that a network does what its automaton does", make_verify},
      {"run", "feed words to a recogniser", make_run},
      {"factor", "write a matrix as a product of Householder factors", make_factor},
      {"extract", "say which automaton a network has learned", make_extract, "Look into a network"},
      {"crystallise", "make a trained network exact, with the proof", make_crystallise},
      {"check", "what the eigenvalues of given gates allow a layer to count", make_check},
      {"collapse", "after how many repetitions of a word a network forgets", make_collapse},
      {"robust", "how much may be wrong with a network before its answers are", make_robust},
      {"bench", "check and time the operators against measured ceilings", make_bench, "This program"},
      {"info", "show the build, the CPU and the libraries in use", make_info},
      {"completion", "print a completion script for bash, zsh or fish", make_completion},
  };
  return table;
}

}  // namespace signet::cli
