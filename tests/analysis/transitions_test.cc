#include "signet/analysis/transitions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "signet/analysis/collapse.h"
#include "signet/analysis/extract.h"
#include "signet/analysis/orbit.h"
#include "signet/automata/named_language.h"
#include "signet/theory/compile.h"
#include "support/check.h"
#include "support/shy_recogniser.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::analysis {
namespace {

Subject compiled(const automata::Dfa& dfa, const theory::CompileOptions& options = {}) {
  Subject subject;
  subject.compiled = theory::compile(dfa, options);
  subject.network = theory::make_recogniser(*subject.compiled, NumberType::kFp32);
  subject.words = Words::all(dfa.letters(), 20);
  subject.automaton = as_mealy(dfa);
  return subject;
}

// For what is said of every head.
std::vector<HeadTransitions> some_heads(Subject& subject) {
  auto heads = head_transitions(subject);
  EXPECT_FALSE(heads.empty());
  return heads;
}

TEST(Transitions, OfACompiledNetworkAreItsGates) {
  auto subject = compiled(automata::named_language("mod:3"));
  const auto heads = head_transitions(subject);
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_TRUE(heads[0].linear);
  const auto& gates = heads[0].gates;
  ASSERT_EQ(gates.gates.size(), subject.network->alphabet().size());
  const auto turn = gates.gates.back();  // a permutation of order 3
  EXPECT_LT(norm(turn * turn * turn - theory::identity(turn.rows())), 1e-6);
  EXPECT_GT(norm(turn - theory::identity(turn.rows())), 0.5);
}

// One layer with one block and no automaton to speak of.
Subject one_block(const theory::Block& block) {
  theory::Network network;
  network.dfa.delta.emplace_back();
  network.dfa.accept = {false};
  theory::Layer layer;
  layer.blocks = {block};
  layer.trails = block.contexts;
  layer.rows = 1;
  layer.row.assign(static_cast<size_t>(block.contexts), 0);
  layer.next.assign(static_cast<size_t>(block.code_count()), 0);
  for (int32_t c = 0; c < block.contexts; ++c) {
    network.dfa.alphabet.emplace_back(1, static_cast<char>('a' + c));
    network.dfa.delta[0].push_back(0);
    layer.context.push_back(c);
  }
  network.layers = {layer};
  network.final_state = network.final_output = {0};
  theory::validate(network, "test");
  Subject subject;
  subject.compiled = network;
  subject.network = theory::make_recogniser(network, NumberType::kFp32);
  subject.words = Words::all(network.dfa.letters(), 20);
  return subject;
}

// A turn by 2^-18, as a complex number and as two reflections: the weights say that it turns, although in
// fp32 it is as near to the real line as trained gates that are taken to lie on it.
TEST(Transitions, OfACompiledNetworkAreItsWeightsNotMeasuredInFp32) {
  const double angle = 0x1.0p-18, c = std::cos(angle), s = std::sin(angle);
  theory::Block turn;
  turn.kind = theory::BlockKind::kComplexDiagonal;
  turn.dim = 2;
  theory::add_diagonal_context(turn, {c, s}, {0, 0});
  theory::Block reflections;
  reflections.dim = 2;
  theory::add_householder_context(reflections,
                                  {{{0, 1}, 2, 0}, {{-std::sin(angle / 2), std::cos(angle / 2)}, 2, 0}});
  theory::finish_householder(reflections);
  for (theory::Block* block : {&turn, &reflections}) {
    block->initial = {1, 0};
    block->codes = {1, 0, c, s};
    Subject subject = one_block(*block);
    const auto heads = head_transitions(subject);
    ASSERT_EQ(heads.size(), 1u);
    EXPECT_TRUE(heads[0].linear);
    const auto& gate = heads[0].gates.gates[0];
    EXPECT_NEAR(gate(1, 0), s, 1e-15);
    EXPECT_NEAR(gate(0, 1), -s, 1e-15);
    EXPECT_EQ(heads[0].gates.off > 0, block == &reflections) << "a product of factors rounds";
    EXPECT_LT(heads[0].gates.off, 1e-14);
    const auto report = theory::check_gates(heads[0].gates, {});
    EXPECT_FALSE(report.theorem1.none());
    EXPECT_TRUE(report.theorem1.found);
    EXPECT_EQ(report.certificate, "");
  }
}

// Swaps, flips and projections do not round: their zeros are zeros, and "not decided" is said of none.
TEST(Transitions, OfExactFactorsAreKnownExactly) {
  for (const char* language : {"T:3", "dyck:3", "tomita4", "kth-last:3"})
    for (const char* target : {"householder-product[-1,1]", "householder[-1,1]", "one-hot"}) {
      theory::CompileOptions options;
      options.target = theory::parse_target(target);
      auto subject = compiled(automata::named_language(language), options);
      for (const auto& head : some_heads(subject)) {
        EXPECT_EQ(head.gates.off, 0) << language << " " << target;
        for (size_t a = 0; a < head.gates.gates.size(); ++a)
          EXPECT_EQ(head.gates.inputs[a].size(), head.gates.state.size());
      }
    }
}

// After the first c the parity of the a's decides. The second layer flips its sign after a c alone, not at
// the start of a word: it is no layer in [0,1].
TEST(Transitions, OfALaterLayerAreThoseAfterOtherWordsToo) {
  automata::Dfa dfa;
  dfa.alphabet = {"a", "c"};
  dfa.accept = {false, true, false};
  dfa.delta = {{0, 1}, {2, 1}, {1, 2}};
  theory::CompileOptions options;
  options.target = theory::NetworkClass::kDiagonalSigned;
  auto subject = compiled(dfa, options);
  const auto heads = head_transitions(subject);
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_TRUE(heads[0].gates.others.empty()) << "of the first layer the letter decides";
  const auto later = theory::check_gates(heads[1].gates, {});
  EXPECT_TRUE(later.theorem1.found);
  EXPECT_EQ(later.certificate, "2-groups");
  for (const auto& gate : heads[1].gates.gates) EXPECT_GE(gate(0, 0), 0);
  // The same gates as factors of one number: what is said of them holds in real numbers only.
  EXPECT_EQ(later.arithmetic, theory::Arithmetic::kFloatingPoint);
  options.target = theory::NetworkClass::kHouseholderSigned;
  auto factors = compiled(dfa, options);
  for (const auto& head : some_heads(factors)) {
    const auto report = theory::check_gates(head.gates, {});
    EXPECT_NE(report.certificate, "");
    EXPECT_EQ(report.arithmetic, theory::Arithmetic::kReal);
  }
}

// What a convolution remembers changes what a letter does.
TEST(Transitions, OfAHeadAfterAConvolutionAreThoseAfterOtherWordsToo) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "with", {"model.conv=4", "train.steps=3"});
  test::train_small(directory / "without", {"train.steps=3"});
  Subject with = open_subject(directory / "with"), without = open_subject(directory / "without");
  for (const auto& head : some_heads(with)) {
    EXPECT_GT(head.gates.others.size(), 4u);
    EXPECT_EQ(head.gates.letters.size(), head.gates.gates.size() + head.gates.others.size());
  }
  for (const auto& head : some_heads(without)) EXPECT_TRUE(head.gates.others.empty());
}

// x -> -x + 2e8, as a letter that writes large numbers has it: 1 is nothing beside them in fp32.
TEST(Transitions, OfALetterThatWritesLargeNumbersAreSeen) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"model.beta=fixed", "train.steps=1"});
  Subject subject = open_subject(directory / "run");
  auto& run = subject.trained->run();
  for (const auto& info : run.model().parameters().infos())
    if (info.name == "blocks.0.mixer.v.weight")
      for (int64_t i = 0; i < info.shape.size(); ++i)
        static_cast<float*>(run.weights())[info.offset + i] *= 1e9F;
  for (const auto& head : some_heads(subject)) {
    EXPECT_TRUE(head.linear);
    for (const auto& gate : head.gates.gates)
      EXPECT_LT(norm(gate * gate - theory::identity(gate.rows())), 1e-3);
    EXPECT_TRUE(theory::check_gates(head.gates, {}).theorem1.found);
  }
}

// One factor with an eigenvalue in [0,1], measured in fp32: nothing of it turns or alternates.
TEST(Transitions, OfAHeadInTheUnitIntervalRuleParityOut) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"model.eigenvalues=0,1", "model.head_dim=16", "train.steps=3"});
  Subject subject = open_subject(directory / "run");
  for (const auto& head : some_heads(subject)) {
    const auto report = theory::check_gates(head.gates, {});
    EXPECT_FALSE(report.theorem1.found)
        << report.theorem1.found->value.real() << " " << report.theorem1.found->value.imag();
    EXPECT_FALSE(report.theorem1.open);
    EXPECT_FALSE(report.theorem2[0].found);
    EXPECT_EQ(report.certificate, "star-free");
  }
}

// beta = 2 of every head and factor: letters reflect, with any number of value columns.
TEST(Transitions, OfATrainedHeadAreReflections) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"model.beta=fixed", "model.write=false", "train.steps=1"});
  Subject subject = open_subject(directory / "run");
  const auto heads = head_transitions(subject);
  ASSERT_EQ(heads.size(), 2u);
  for (const auto& head : heads) {
    EXPECT_TRUE(head.linear);
    EXPECT_EQ(head.copies, 4);
    for (const auto& gate : head.gates.gates) {
      ASSERT_EQ(gate.rows(), 4);
      EXPECT_LT(norm(gate * gate - theory::identity(4)), 1e-3);
      double trace = 0;
      for (int i = 0; i < 4; ++i) trace += gate(i, i);
      EXPECT_NEAR(trace, 2, 1e-3) << "one eigenvalue is -1";
    }
    EXPECT_NE(head.gates.other, head.gates.state);
    EXPECT_NEAR(theory::check_gates(head.gates, {}).norm, 1, 1e-3);
  }
}

// A run of parity of width 8 after one update.
Subject one_update(const std::string& path, const std::string& model, std::vector<std::string> set) {
  set.insert(set.begin(),
             {"model.width=8", "train.steps=1", "train.batch=4", "eval.samples=8", "train.validate_every=0"});
  auto run = io::RunDirectory::create(path, false);
  train::train(train::resolve_config({"", "parity", model, set}), run, false, {true, "", {}});
  return open_subject(path);
}

// What a dense layer reads of its state is the direction: gates that shrink it may still turn it for ever.
TEST(Transitions, OfADirectionShrinkingSaysNothing) {
  test::TemporaryDirectory directory;
  Subject subject = one_update(directory / "run", "dense", {"model.state=3", "model.start=random"});
  auto heads = head_transitions(subject);
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_TRUE(heads[0].gates.direction);
  for (const auto& gate : heads[0].gates.gates) EXPECT_NEAR(theory::spectral_norm(gate), 1, 1e-9);
  theory::GateSet turns =
      theory::parse_gates("[[[0,0,0.5],[0.5,0,0],[0,0.5,0]], [[0.5,0,0],[0,0.5,0],[0,0,0.5]]]", "");
  EXPECT_EQ(theory::check_gates(turns, {}).certificate, "definite");
  turns.direction = true;
  const auto report = theory::check_gates(turns, {});
  EXPECT_EQ(report.certificate, "");
  EXPECT_TRUE(report.collapse.empty());
  EXPECT_TRUE(report.theorem2[0].found);
  // Symmetric, in (-1,1], and in its direction of period 2.
  theory::GateSet flips = theory::parse_gates("[[[0,-0.5],[-0.5,0]]]", "");
  EXPECT_EQ(theory::check_gates(flips, {}).certificate, "definite");
  flips.direction = true;
  EXPECT_EQ(theory::check_gates(flips, {}).certificate, "");
}

TEST(Transitions, ALstmIsNotLinear) {
  test::TemporaryDirectory directory;
  Subject subject = one_update(directory / "run", "lstm", {"model.blocks=1"});
  const auto heads = head_transitions(subject);
  ASSERT_EQ(heads.size(), 2u) << "outputs and cells";
  for (const auto& head : heads) EXPECT_FALSE(head.linear) << "gates depend on the outputs before";
}

// An LSTM of parity whose gates see its outputs only where several of them are low together: no unit vector
// shows it. Units 0 and 1 are high while an even number stays even, units 2 and 3 once an odd one becomes so.
TEST(Transitions, OfAnLstmThatSeemsLinearAreNot) {
  test::TemporaryDirectory directory;
  Subject subject = one_update(directory / "run", "lstm", {"model.blocks=1", "model.heads=1", "model.mlp=0"});
  auto& trained = subject.trained->run();
  auto* weights = static_cast<float*>(trained.weights());
  std::fill_n(weights, trained.model().parameters().size(), 0.0F);
  const auto at = [&](const std::string& name, int64_t row, int64_t column) -> float& {
    for (const auto& info : trained.model().parameters().infos())
      if (info.name == name)
        return weights[info.offset + row * (info.shape.rank() > 1 ? info.shape[1] : 1) + column];
    throw std::out_of_range(name);
  };
  const std::string mixer = "blocks.0.mixer";
  for (int i = 0; i < 8; ++i) {
    at(mixer + "_norm.weight", i, 0) = at("norm.weight", i, 0) = 1;
    at(mixer + ".bias", i, 0) = at(mixer + ".bias", 24 + i, 0) = 100;  // input and output gates are open
    at(mixer + ".bias", 8 + i, 0) = -100;                              // and the forget gate is shut
  }
  for (const int token : {1, 2}) at("embedding.weight", token, token) = at("embedding.weight", token, 6) = 1;
  for (int i = 0; i < 4; ++i) {
    const float sign =
        i < 2 ? 1 : -1;  // z = sign * (100 (y_0 + .. + y_3) + 150), and off where the letter says so
    for (int j = 0; j < 4; ++j) at(mixer + ".recurrent.weight", 16 + i, j) = 100 * sign;
    at(mixer + ".bias", 16 + i, 0) = 150 * sign - (i < 2 ? 0 : 1000);
    at(mixer + ".gates.weight", 16 + i, 2) = -500 * sign;
    at(mixer + ".output.weight", 7, i) = 1;
  }
  at("head.weight", 0, 6) = -100;
  at("head.weight", 1, 7) = 5, at("head.weight", 1, 6) = 7.5;
  at("head.weight", 2, 7) = -5, at("head.weight", 2, 6) = -7.5;
  const auto proof = verify_trained(subject, {});
  EXPECT_TRUE(proof.proved) << proof.certificate;
  for (const auto& head : some_heads(subject)) EXPECT_FALSE(head.linear);
}

TEST(VerifyTrained, ClosureProvesAndRefutes) {
  auto subject = compiled(automata::named_language("tomita3"));
  const auto proved = verify_trained(subject, {});
  EXPECT_TRUE(proved.proved && proved.correct && !proved.longest) << proved.certificate;
  subject.automaton = as_mealy(automata::named_language("tomita4"));
  const auto refuted = verify_trained(subject, {});
  ASSERT_TRUE(refuted.counterexample);
  EXPECT_FALSE(refuted.correct);
  const auto shortest =
      distinguishing_word(as_mealy(automata::named_language("tomita3")), *subject.automaton, subject.words);
  EXPECT_EQ(refuted.counterexample->size(), shortest->size());
  EXPECT_EQ(refuted.longest, static_cast<int64_t>(shortest->size()) - 1);
}

// The state x/4 + letter is another for every word. It is answered wrongly near the states of 2222221 and of
// 00000000, which has one letter more. Levels of 3^n words do not fill the rows that are run at once.
TEST(VerifyTrained, TheWrongWordIsTheShortest) {
  theory::Network network;
  network.dfa.alphabet = {"0", "1", "2"};
  network.dfa.delta = {{0, 0, 0}};
  network.dfa.accept = {false};
  theory::Block block;
  block.kind = theory::BlockKind::kDiagonal;
  block.dim = 1;
  for (const double letter : {0.0, 1.0, 2.0}) theory::add_diagonal_context(block, {0.25}, {letter});
  block.initial = {1};
  block.codes = {0x1.0p-16, 3 * 0x1.0p-16, 1.66635, 1.666565, 1.7};
  theory::Layer layer;
  layer.blocks = {block};
  layer.trails = 3;
  layer.context = {0, 1, 2};
  layer.row = {0, 0, 0};
  layer.rows = 1;
  layer.next = {1, 0, 0, 1, 0};
  network.layers = {layer};
  network.final_state = {0, 0};
  network.final_output = {0, 1};
  theory::validate(network, "test");
  Subject subject;
  subject.network = theory::make_recogniser(network, NumberType::kFp64);
  subject.words = Words::all(3, 20);
  subject.automaton = as_mealy(network.dfa);
  const auto refuted = verify_trained(subject, {});
  ASSERT_TRUE(refuted.counterexample);
  EXPECT_EQ(*refuted.counterexample, (Word{2, 2, 2, 2, 2, 2, 1}));
  EXPECT_EQ(refuted.longest, 6);
}

TEST(VerifyTrained, WordsAreReadByThemselves) {
  const auto mod = [](const char* name) { return automata::named_language(name); };
  for (const bool right : {false, true}) {
    Subject subject;
    subject.words = Words::all(2, 20);
    subject.network = std::make_unique<test::Shy>(mod(right ? "parity" : "kth-last:1"),
                                                  mod(right ? "kth-last:1" : "parity"));
    subject.automaton = as_mealy(mod("parity"));
    EXPECT_EQ(verify_trained(subject, {}).proved, right);
  }
}

// Trained on one pair, an instruction and its bit. Words of the task go on after it.
TEST(VerifyTrained, WordsOfTheTaskAreLongerThanThoseOfTraining) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"train.min_length=2", "train.max_length=2", "train.steps=1"},
                    "flip-flop");
  Subject subject = open_subject(directory / "run");
  EXPECT_EQ(subject.words.longest, 2);
  const auto letter = [&](const char* name) {
    const auto& names = subject.network->alphabet();
    return static_cast<Letter>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const auto has = [&](const std::vector<const char*>& names) {
    Word word;
    for (const char* name : names) word.push_back(letter(name));
    return subject.words.after(subject.words.start(), word).has_value();
  };
  EXPECT_FALSE(has({"r"}));
  EXPECT_TRUE(has({"w", "1", "r", "-", "i", "0", "w", "1"}));
  EXPECT_FALSE(has({"w", "1", "0"}));
}

// So rare an instruction that no sample has one.
TEST(VerifyTrained, RareLettersAreAskedAbout) {
  for (const char* task : {"flip-flop:0.99999999", "flip-flop", "flip-flop:0"}) {
    SCOPED_TRACE(task);
    test::TemporaryDirectory directory;
    test::train_small(directory / "run", {"train.min_length=4", "train.max_length=8", "train.steps=1"}, task);
    const Subject subject = open_subject(directory / "run");
    const std::string letters = "01-riw";  // one each, as they are numbered
    const auto allows = [&](const char* before, char next) {
      Word word;
      for (const char* a = before; *a; ++a) word.push_back(static_cast<Letter>(letters.find(*a)));
      return subject.words.allows(*subject.words.after(subject.words.start(), word),
                                  static_cast<Letter>(letters.find(next)));
    };
    for (const char a : letters) {
      const bool bit = a < 'a';
      EXPECT_EQ(allows("", a), a == 'w');
      EXPECT_EQ(allows("w", a), bit && a != '-');
      for (const char* free : {"w0", "w1", "w0w1"})
        EXPECT_EQ(allows(free, a), !bit && (a != 'i' || task != std::string("flip-flop:0")));
      EXPECT_EQ(allows("w0r", a), a == '-');
    }
  }
}

// Two hundred letters, of which samples hardly ever have most: no pair is left out.
TEST(VerifyTrained, EveryWordOfALanguageIsAskedAbout) {
  test::TemporaryDirectory directory;
  std::string letters = "ab";
  for (int code = 0x100; code < 0x1c6; ++code) {  // as UTF-8
    letters += static_cast<char>(0xc0 | code >> 6);
    letters += static_cast<char>(0x80 | (code & 0x3f));
  }
  test::train_small(directory / "run",
                    {"train.steps=1", "train.batch=1", "task.regex=(ab)*", "task.alphabet=" + letters},
                    "automaton");
  const Subject subject = open_subject(directory / "run");
  ASSERT_EQ(subject.words.letters(), 200);
  for (Letter a = 0; a < 200; ++a)
    for (Letter b = 0; b < 200; ++b)
      EXPECT_TRUE(subject.words.after(subject.words.start(), {a, b})) << a << " " << b;
}

// Every element is followed by two blanks, which pairs of letters do not tell.
TEST(VerifyTrained, LettersHaveTheirTurns) {
  test::TemporaryDirectory directory;
  test::train_small(directory / "run", {"train.min_length=1", "train.steps=1"}, "Z2:3tokens");
  Subject subject = open_subject(directory / "run");
  const Letter blank = 2;
  EXPECT_EQ(subject.network->alphabet()[static_cast<size_t>(blank)], "blank");
  Word word;
  for (int64_t t = 0; t < 6; ++t) {
    const State at = *subject.words.after(subject.words.start(), word);
    for (Letter a = 0; a <= blank; ++a) EXPECT_EQ(subject.words.allows(at, a), (t % 3 > 0) == (a == blank));
    word.push_back(t % 3 == 2 ? 1 : blank);
    if (t % 3 == 2) word.back() = blank;
    if (t % 3 == 0) word.back() = 1;
  }
  CollapseOptions options;
  options.word = {blank};
  test::expect_error([&] { collapse(subject, options); }, ErrorCode::kBadInput, "again and again");
  options.word = {1, blank, blank};
  options.limit = 300;
  const Collapse found = collapse(subject, options);
  EXPECT_EQ(found.first.size() % 3, 0u);
  EXPECT_EQ(found.second.size() % 3, 0u);
  for (const Word& suffix : found.suffixes)
    for (size_t t = 0; t < suffix.size(); ++t) EXPECT_EQ(suffix[t] == blank, t % 3 > 0);
  // An automaton that differs where an element comes after one blank is the same on words of the task.
  const automata::Dfa machine = *subject.automaton;
  automata::Dfa other = machine;
  const auto one = static_cast<size_t>(machine.delta[static_cast<size_t>(machine.start)][1]);
  const auto early = static_cast<size_t>(machine.delta[one][static_cast<size_t>(blank)]);
  for (size_t a = 0; a < 2; ++a) other.output[early][a] = 1 - other.output[early][a];
  EXPECT_FALSE(distinguishing_word(machine, other, subject.words));
  EXPECT_TRUE(distinguishing_word(machine, other, Words::all(3, 20)));
  // No v of two letters comes again and again; the text does not say that one was tried.
  theory::VerifyOptions tests;
  tests.method = theory::VerifyMethod::kRandom;
  tests.length = 6;
  EXPECT_EQ(verify_trained(subject, tests).certificate.find("u v^n w"), std::string::npos);
}

TEST(VerifyTrained, TestsWhatDoesNotClose) {
  auto subject = compiled(automata::named_language("mod:7"));
  theory::VerifyOptions options;
  options.max_states = 3;
  options.length = 100;
  const auto tested = verify_trained(subject, options);
  EXPECT_TRUE(tested.correct);
  EXPECT_FALSE(tested.proved);
  EXPECT_EQ(tested.method, "random-testing");
  subject.automaton.reset();
  test::expect_error([&] { verify_trained(subject, options); }, ErrorCode::kBadInput, "extract");
}

}  // namespace
}  // namespace signet::analysis
