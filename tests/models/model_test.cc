// Whole models: every gradient against finite differences in fp64, inference in pieces against one pass.
#include "signet/models/model.h"

#include <cmath>
#include <cstring>

#include "signet/autograd/ops.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/models/registry.h"
#include "support/check.h"

namespace signet::models {
namespace {

struct Variant {
  const char* name;
  const char* architecture;
  std::vector<std::string> set;
  bool exact_gradient = true;  // false: straight-through somewhere
};
const Variant kVariants[] = {
    {"deltanet", "deltanet", {"width=8", "heads=2", "blocks=2", "mlp=12"}},
    {"deltanet [0,1]", "deltanet", {"width=8", "heads=2", "blocks=1", "mlp=0", "eigenvalues=0,1"}},
    {"deltanet layer norm", "deltanet", {"width=4", "heads=1", "norm=layer", "mlp=3", "blocks=1"}},
    {"deltanet no conv",
     "deltanet",
     {"width=8", "heads=2", "conv=0", "mlp=0", "blocks=2", "final_norm=false"}},
    {"deltanet conv without silu",
     "deltanet",
     {"width=6", "heads=2", "conv=1", "qk_activation=none", "mlp=4"}},
    {"deltaproduct",
     "deltaproduct",
     {"width=8", "heads=2", "head_dim=3", "householders=3", "conv=2", "mlp=0"}},
    {"deltaproduct no write",
     "deltaproduct",
     {"width=8", "heads=2", "head_dim=3", "write=false", "conv=0", "beta=hard", "mlp=0"}},
    {"deltanet reflections from a learned state, with convolution",
     "deltanet",
     {"width=8", "heads=2", "write=false", "conv=2", "beta=fixed", "blocks=1", "mlp=0"}},
    {"deltanet learned state", "deltanet", {"width=6", "heads=2", "initial_state=learned", "mlp=0"}},
    {"gated deltanet", "gated-deltanet", {"width=8", "heads=2", "blocks=2", "mlp=0"}},
    {"gated deltanet [0,1]",
     "gated-deltanet",
     {"width=6", "heads=2", "conv=0", "output_gate=false", "eigenvalues=0,1", "mlp=4"}},
    {"gated deltanet signed decay",
     "gated-deltanet",
     {"width=6", "heads=2", "decay_range=signed", "output_norm=false", "mlp=0"}},
    {"gated deltaproduct", "gated-deltaproduct", {"width=8", "heads=2", "householders=3", "mlp=0"}},
    {"gated deltaproduct [0,1]",
     "gated-deltaproduct",
     {"width=6", "heads=1", "head_dim=4", "conv=2", "eigenvalues=0,1", "mlp=0"}},
    {"gated deltaproduct with exact ends",
     "gated-deltaproduct",
     {"width=8", "heads=2", "beta_margin=0.05", "decay_margin=0.001", "mlp=0"}},
    {"gated deltaproduct with exact ends in use",
     "gated-deltaproduct",
     {"width=8", "heads=2", "beta_margin=0.05", "beta_gain=4", "decay_margin=0.5", "mlp=0"},
     false},
    {"kda", "kda", {"width=8", "heads=2", "blocks=2", "mlp=0"}},
    {"kda [0,1]", "kda", {"width=6", "heads=2", "conv=0", "eigenvalues=0,1", "mlp=4"}},
    {"kda without write", "kda", {"width=6", "heads=2", "conv=0", "write=false", "mlp=0"}},
    {"mamba", "mamba", {"width=6", "state=4", "blocks=2"}},
    {"mamba [0,1]", "mamba", {"width=6", "state=3", "conv=1", "eigenvalues=0,1"}},
    {"mamba no conv", "mamba", {"width=6", "state=5", "conv=0", "mlp=8", "final_norm=true", "blocks=1"}},
    {"slstm", "slstm", {"width=6", "heads=2", "blocks=2", "mlp=5"}},
    {"slstm rms", "slstm", {"width=4", "heads=1", "norm=rms", "mlp=3"}},
    {"slstm dense",
     "slstm",
     {"width=6", "heads=3", "gate_maps=dense", "output_map=linear", "mlp=0", "output_norm=false"}},
    {"slstm shared gain, SwiGLU",
     "slstm",
     {"width=6", "heads=2", "norm_gain=shared", "mlp_gate=silu", "mlp=4"}},
    {"slstm with convolution", "slstm", {"width=6", "heads=2", "conv=3", "blocks=2", "mlp=4"}},
    {"lstm", "lstm", {"width=5", "blocks=2", "mlp=4"}},
    {"lstm heads", "lstm", {"width=6", "heads=2", "gate_maps=headwise", "output_map=none", "mlp=0"}},
    {"transformer", "transformer", {"width=8", "heads=2", "blocks=2", "mlp=6", "max_length=7"}},
    {"transformer without positions", "transformer", {"width=6", "heads=2", "rotary_base=0", "mlp=0"}},
    {"dense", "dense", {"width=5", "state=3", "start_gain=0.5"}},
    {"dense random", "dense", {"width=6", "heads=2", "state=4", "start=random", "blocks=2", "mlp=5"}},
    {"pd", "pd", {"width=6", "heads=2", "state=5", "dictionary=3", "blocks=2", "mlp=4"}, false},
    {"pd soft", "pd", {"width=6", "heads=2", "state=4", "dictionary=3", "choice=soft", "mlp=0"}},
    {"pd soft [0,1]",
     "pd",
     {"width=6", "heads=1", "state=3", "dictionary=2", "choice=soft", "output_norm=false",
      "eigenvalues=0,1"}},
    {"gla", "gla", {"width=8", "heads=2", "gate_rank=3", "gate_tau=2", "mlp=12", "blocks=2"}},
    {"gla [0,1]", "gla", {"width=8", "heads=2", "key_dim=3", "conv=3", "mlp=0", "eigenvalues=0,1"}},
    {"mamba2", "mamba2", {"width=6", "head_dim=3", "state=5", "groups=2", "blocks=2"}},
    {"mamba2 [0,1]", "mamba2", {"width=6", "head_dim=4", "state=4", "conv=0", "eigenvalues=0,1"}},
    {"mlstm", "mlstm", {"width=8", "heads=2", "blocks=2"}},
    {"mlstm [0,1]", "mlstm", {"width=6", "heads=3", "block=2", "conv=0", "eigenvalues=0,1", "norm=rms"}},
    {"mlstm shared gain", "mlstm", {"width=8", "heads=2", "norm_gain=shared", "blocks=1"}},
    {"slstm and mlstm",
     "slstm+mlstm",
     {"width=8", "slstm.heads=2", "slstm.mlp=5", "slstm.conv=2", "mlstm.heads=4", "eigenvalues=0,1"}},
    {"three kinds of blocks in turn",
     "mamba+deltanet+lstm+deltanet",
     {"width=6", "blocks=5", "mamba.state=3", "deltanet.heads=2", "deltanet.mlp=4", "lstm.mlp=0"}},
};

ModelConfig configure(const Variant& variant) {
  ModelConfig config = ModelConfig::for_architecture(variant.architecture);
  io::Fields fields = io::fields_of(config);
  for (const auto& assignment : variant.set) fields.set(assignment);
  return config;
}

struct Fixture {
  static constexpr int64_t kVocabulary = 3, kClasses = 4;
  Model model;
  Sequence sequence;
  std::vector<double> weights, gradient;
  std::vector<int32_t> tokens, scored, targets;

  Fixture(const Variant& variant, int64_t batch, int64_t time, uint64_t seed)
      : Fixture(configure(variant), batch, time, seed) {}
  Fixture(const ModelConfig& config, int64_t batch, int64_t time, uint64_t seed)
      : model(config, kVocabulary, kClasses),
        sequence{batch, time},
        weights(static_cast<size_t>(model.parameters().size())),
        gradient(weights.size()),
        tokens(static_cast<size_t>(batch * time)) {
    model.parameters().initialize(seed, DType::kF64, weights.data());
    Rng rng(seed, 99);
    // Away from the start, where several gradients vanish.
    for (auto& w : weights) w += 0.3 * rng.normal();
    for (auto& t : tokens) t = static_cast<int32_t>(rng.below(kVocabulary));
    for (int64_t b = 0; b < batch; ++b) {
      scored.push_back(static_cast<int32_t>(b * time + rng.below(static_cast<uint32_t>(time))));
      targets.push_back(static_cast<int32_t>(rng.below(kClasses)));
    }
  }
  double loss(bool backward) {
    if (backward) std::fill(gradient.begin(), gradient.end(), 0.0);
    return pass(backward);
  }
  double pass(bool backward, FreshGradients* fresh = nullptr) {
    Arena arena;
    if (backward) {
      // All memory is NaN at first: where the parts of a column view leave a gap in their value's gradient,
      // it reaches the weights.
      arena.reserve(1 << 20);
      std::memset(arena.allocate(1 << 20), 0xFF, 1 << 20);
      arena.reset();
    }
    Tape tape(arena, DType::kF64, backward);
    const Weights view(model.parameters(), DType::kF64, weights.data(), backward ? gradient.data() : nullptr,
                       fresh);
    const auto rows = static_cast<int64_t>(scored.size());
    const Var logits = model.forward(tape, view, tokens.data(), sequence, scored.data(), rows);
    double total = 0;
    autograd::cross_entropy(tape, logits, targets.data(), rows, &total, nullptr);
    if (backward) tape.backward();
    return total / static_cast<double>(rows);
  }
};

// In at most `limit` entries of every parameter.
void expect_gradients(Fixture& f, double accuracy, size_t limit) {
  f.loss(true);
  for (const auto& info : f.model.parameters().infos()) {
    const auto begin = f.gradient.begin() + info.offset;
    const std::vector<double> analytic(begin, begin + info.shape.size());
    std::vector<double> point(f.weights.begin() + info.offset,
                              f.weights.begin() + info.offset + info.shape.size());
    test::expect_gradient(
        point, analytic,
        [&] {
          std::copy(point.begin(), point.end(), f.weights.begin() + info.offset);
          return f.loss(false);
        },
        info.name, accuracy, limit);
    std::copy(point.begin(), point.end(), f.weights.begin() + info.offset);
  }
}

TEST(Model, GradientsMatchFiniteDifferences) {
  for (const auto& variant : kVariants) {
    if (!variant.exact_gradient) continue;
    for (int64_t time : {1, 6}) {  // 1 x 2 rows: the vocabulary is not the smaller side
      SCOPED_TRACE(testing::Message() << variant.name << " time " << time);
      Fixture f(variant, 2, time, 7);
      expect_gradients(f, 2e-6, 12);
    }
  }
}

// The first product that comes to a matrix overwrites its gradient, so that only the others have to be
// cleared; a second pass adds.
TEST(Model, ProductsOverwriteFreshGradients) {
  int64_t overwritten = 0;
  for (const auto& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    Fixture f(variant, 2, 6, 7);
    f.loss(true);
    const std::vector<double> expected = f.gradient;
    FreshGradients rehearsal(f.model.parameters());
    f.pass(true, &rehearsal);
    const auto others = rehearsal.others();
    std::fill(f.gradient.begin(), f.gradient.end(), std::nan(""));
    overwritten += f.model.parameters().size();
    for (const ElementRange& range : others) {
      std::fill(f.gradient.begin() + range.begin, f.gradient.begin() + range.end, 0.0);
      overwritten -= range.size();
    }
    FreshGradients fresh(f.model.parameters());
    f.pass(true, &fresh);
    EXPECT_EQ(fresh.others(), others);
    EXPECT_EQ(f.gradient, expected);
    f.pass(true, &fresh);
    std::vector<double> twice = expected;
    for (double& x : twice) x *= 2;
    EXPECT_LT(test::relative_error(f.gradient, twice), 1e-14);
  }
  EXPECT_GT(overwritten, 5000);
}

TEST(Model, MatricesThatShareParametersAreRefused) {
  Parameters parameters;
  for (const char* name : {"a", "b", "c"}) parameters.add_product(name, {2, 3}, constant_init(0));
  FreshGradients fresh(parameters);
  bool* const both = fresh.written(0, 1);
  EXPECT_EQ(fresh.written(0, 1), both);
  EXPECT_NE(fresh.written(2, 2), both);
  EXPECT_THROW(fresh.written(1, 1), Error);
  EXPECT_THROW(fresh.written(0, 0), Error);
  EXPECT_THROW(fresh.written(1, 2), Error);
  *both = true;
  EXPECT_EQ(fresh.others(), (std::vector<ElementRange>{{12, 18}}));
}

// Of the sequences in pieces, or of whole ones as training sees them, without a state.
std::vector<double> logits_of(Fixture& f, const std::vector<int64_t>& pieces, bool training = false) {
  const Weights view(f.model.parameters(), DType::kF64, f.weights.data(), nullptr);
  const int64_t batch = f.sequence.batch, time = f.sequence.time, classes = Fixture::kClasses;
  std::vector<double> out(static_cast<size_t>(batch * time * classes));
  ModelState state(f.model, batch, DType::kF64);
  int64_t begin = 0;
  for (int64_t n : pieces) {
    Arena arena;
    Tape tape(arena, DType::kF64, false);
    std::vector<int32_t> part;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < n; ++t) part.push_back(f.tokens[b * time + begin + t]);
    const Var logits =
        f.model.forward(tape, view, part.data(), {batch, n}, nullptr, batch * n, training ? nullptr : &state);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < n * classes; ++i)
        out[(b * time + begin) * classes + i] = logits.value.as<double>()[b * n * classes + i];
    }
    begin += n;
  }
  return out;
}

// Decoding token by token, or in pieces of any size, is the same function as the pass of training.
void expect_same_in_pieces(Fixture& f, double accuracy) {
  const auto whole = logits_of(f, {7}, /*training=*/true);
  for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{7}, {1, 1, 1, 1, 1, 1, 1}, {2, 0, 4, 1}})
    EXPECT_LT(test::relative_error(logits_of(f, pieces), whole), accuracy) << pieces.size() << " pieces";
}

TEST(Model, StateContinuesASequence) {
  for (const auto& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    Fixture f(variant, 3, 7, 11);
    expect_same_in_pieces(f, 1e-12);
  }
}

// What an architecture describes as a choice among a few values may be chosen in any combination, and none
// may be wrong. New options are drawn, too.
TEST(Model, AnyCombinationOfChoices) {
  const std::pair<const char*, std::vector<const char*>> kSizes[] = {{"width", {"4", "6", "8"}},
                                                                     {"blocks", {"1", "2"}},
                                                                     {"mlp", {"0", "5"}},
                                                                     {"heads", {"1", "2"}},
                                                                     {"head_dim", {"2", "4"}},
                                                                     {"state", {"1", "3"}},
                                                                     {"householders", {"1", "3"}},
                                                                     {"conv", {"0", "1", "3"}},
                                                                     {"dictionary", {"3"}},
                                                                     {"gate_rank", {"2"}},
                                                                     {"block", {"2"}},
                                                                     {"key_dim", {"0", "3"}},
                                                                     {"max_length", {"7"}},
                                                                     {"eigenvalues", {"0,1", "-1,1"}}};
  for (const auto& architecture : architecture_names()) {
    Rng rng(17, architecture.size());
    int made = 0;
    for (int draw = 0; draw < 20; ++draw) {
      ModelConfig config = ModelConfig::for_architecture(architecture);
      io::Fields fields = io::fields_of(config);
      const auto pick = [&](const auto& values) { return values[rng.below(values.size())]; };
      for (const auto& field : fields.all()) {
        auto choices = field.choices;
        if (field.allowed == "true or false") choices = {"true", "false"};
        if (!choices.empty()) fields.set(field.key + "=" + pick(choices));
        for (const auto& [key, values] : kSizes)
          if (field.key == key && (field.key != "eigenvalues" || config.has_range()))
            fields.set(field.key + "=" + pick(values));
      }
      const std::string yaml = fields.to_yaml();
      SCOPED_TRACE(yaml);
      try {
        Fixture f(config, 3, 7, static_cast<uint64_t>(draw));
        ++made;
        expect_same_in_pieces(f, 1e-10);
        // Straight-through where a gate is clamped or a choice is hard.
        if (yaml.find(": hard") == std::string::npos) expect_gradients(f, 1e-5, 3);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kBadInput) << error.what();
      }
    }
    EXPECT_GE(made, 4) << architecture;
  }
}

TEST(Model, StartIsAPureFunctionOfTheSeed) {
  const Variant variant = kVariants[0];
  const Model model(configure(variant), 3, 3);
  std::vector<float> a(static_cast<size_t>(model.parameters().size())), b = a, c = a;
  model.parameters().initialize(1, DType::kF32, a.data());
  model.parameters().initialize(1, DType::kF32, b.data());
  model.parameters().initialize(2, DType::kF32, c.data());
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(Model, StartDoesNotDependOnTheThreads) {
  for (const auto& variant : kVariants) {
    const Model model(configure(variant), 3, 3);
    for (const auto& info : model.parameters().infos()) {
      Rng drawing(1, 2), skipping(1, 2);
      for (int64_t i = 0; i < info.shape.size(); ++i) info.init(drawing, i);
      skipping.skip(static_cast<uint64_t>(info.shape.size() * info.init.words));
      EXPECT_EQ(drawing.next_u32(), skipping.next_u32()) << variant.name << ": " << info.name;
    }
  }
  const Model model(configure({"", "deltanet", {"width=32", "heads=4"}}), 300, 300);
  std::vector<float> one(static_cast<size_t>(model.parameters().size())), three = one;
  const int threads = thread_count();
  set_thread_count(1);
  model.parameters().initialize(1, DType::kF32, one.data());
  set_thread_count(3);
  model.parameters().initialize(1, DType::kF32, three.data());
  set_thread_count(threads);
  EXPECT_EQ(one, three);
}

TEST(Model, CopiesOfAConfigurationHaveOptionsOfTheirOwn) {
  for (const auto& variant : kVariants) {
    ModelConfig original = configure(variant);
    const std::string before = io::fields_of(original).to_yaml();
    ModelConfig copy = original, assigned;
    assigned = original;
    for (ModelConfig* config : {&copy, &assigned}) {
      io::Fields fields = io::fields_of(*config);
      EXPECT_EQ(fields.to_yaml(), before) << variant.name;
      for (const auto& field : fields.all())
        if (!field.choices.empty())
          for (const auto& choice : field.choices) {
            if (field.write() == choice) continue;
            fields.set(field.key + "=" + choice);
            break;
          }
      EXPECT_NE(fields.to_yaml(), before) << variant.name;
      EXPECT_EQ(io::fields_of(original).to_yaml(), before) << variant.name;
    }
  }
}

// An sLSTM's forget gates start at 5 - 12 share^power, where the power grows from 0.3 to 1.6 with the block.
TEST(Model, ForgetGatesOfAnSlstmStartByTheirBlock) {
  const Model model(configure({"", "slstm", {"width=6", "heads=2", "blocks=3"}}), 3, 3);
  std::vector<double> values(static_cast<size_t>(model.parameters().size()));
  model.parameters().initialize(1, DType::kF64, values.data());
  std::vector<double> found;
  for (const auto& info : model.parameters().infos())
    if (info.name.ends_with("mixer.bias")) found.push_back(values[static_cast<size_t>(info.offset) + 3 + 1]);
  ASSERT_EQ(found.size(), 3u);
  for (int block = 0; block < 3; ++block)
    EXPECT_NEAR(found[block], 5 - 12 * std::pow(0.5, 0.3 + 0.65 * block), 1e-12) << block;
}

TEST(Model, TitlesAreThoseOfTheParts) {
  EXPECT_EQ(architecture_title("gated-deltanet"), "Gated DeltaNet");
  EXPECT_EQ(architecture_title("dense"), "Dense");
  EXPECT_EQ(architecture_title("slstm+mlstm+x"), "sLSTM+mLSTM+x");
  EXPECT_EQ(architecture_title(""), "");
}

TEST(Model, EigenvaluesLieInTheirRange) {
  for (const auto& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    Fixture f(variant, 2, 5, 3);
    Arena arena;
    Tape tape(arena, DType::kF64, false);
    const Weights view(f.model.parameters(), DType::kF64, f.weights.data(), nullptr);
    const auto eigenvalues = f.model.eigenvalues(tape, view, f.tokens.data(), f.sequence);
    ASSERT_EQ(eigenvalues.size(), f.model.blocks());
    for (size_t block = 0; block < f.model.blocks(); ++block) {
      const Tensor& t = eigenvalues[block];
      if (f.model.mixer(block).eigenvalue_groups() == 0) {
        EXPECT_EQ(t.data, nullptr);
        continue;
      }
      const bool positive = f.model.config().range() == EigenvalueRange::kPositive;
      EXPECT_EQ(t.rows(), 10);
      for (int64_t i = 0; i < t.size(); ++i) {
        EXPECT_GE(t.as<double>()[i], positive ? 0.0 : -1.0);
        EXPECT_LE(t.as<double>()[i], 1.0);
      }
    }
  }
}

// A group of Mamba-2's heads is normalised by itself: where nothing but D x is read, the size of one group's
// D changes nothing, neither in that group nor in the others.
TEST(Model, GroupsOfMamba2HaveNormsOfTheirOwn) {
  Fixture f({"", "mamba2", {"width=6", "head_dim=3", "state=5", "groups=2", "conv=0", "norm_eps=1e-12"}}, 2,
            7, 3);
  const auto scale = [&](const char* end, int64_t first, int64_t count, double factor) {
    for (const auto& info : f.model.parameters().infos())
      if (info.name.ends_with(end))
        for (int64_t i = first; i < first + count; ++i) f.weights[info.offset + i] *= factor;
  };
  const int64_t inner = 12, shared = 10;
  scale("in.weight", (2 * inner + shared) * 6, shared * 6, 0);  // C
  const double right = f.loss(false);
  scale(".D", 2, 2, 1000);
  EXPECT_NEAR(f.loss(false), right, 1e-9);
}

// Per token: two operations per entry of a matrix and the recurrence, three times for forward and backward.
TEST(Model, OperationsOfAToken) {
  const auto flops = [](const char* architecture, std::vector<std::string> set, double length) {
    return Model(configure({"", architecture, std::move(set)}), 3, 5).train_flops_per_token(length);
  };
  const double head = 5 * 8;
  // q, k, v, o of 8 x 8, beta of 2 x 8; norms of 8, 8 and 4; two heads of 4 x 4 with one factor.
  EXPECT_EQ(flops("deltanet", {"width=8", "heads=2", "blocks=1", "conv=0", "mlp=0"}, 9),
            3 * (2 * (4 * 64 + 16 + 8 + 8 + 4 + head) + 6 * 32));
  const double two = flops("deltaproduct", {"width=8", "heads=2", "blocks=1", "conv=0", "mlp=0"}, 9);
  const double three =
      flops("deltaproduct", {"width=8", "heads=2", "blocks=1", "conv=0", "mlp=0", "householders=3"}, 9);
  EXPECT_EQ(three - two, 3 * (2 * (2 * 64 + 16) + 4 * 32)) << "one more k, v and beta, and factor";
  // Attention alone grows with the length.
  const std::vector<std::string> small = {"width=8", "heads=2", "blocks=1", "mlp=0"};
  EXPECT_EQ(flops("transformer", small, 20) - flops("transformer", small, 10), 3 * 2 * 8 * 10);
  EXPECT_EQ(flops("slstm", small, 20), flops("slstm", small, 10));
}

TEST(Model, BlocksTakeTheirMixersInTurn) {
  const Model model(configure({"", "lstm+mamba+lstm", {"width=4", "blocks=5", "mamba.state=2"}}), 3, 3);
  std::string found;
  for (size_t i = 0; i < model.blocks(); ++i) found += model.mixer(i).eigenvalue_groups() ? 'm' : 'l';
  EXPECT_EQ(found, "lmllm");
  EXPECT_EQ(ModelConfig::for_architecture("lstm+mamba").blocks, 2);
  EXPECT_EQ(ModelConfig::for_architecture("lstm+slstm").range_text(), "") << "neither has a range";
  EXPECT_EQ(ModelConfig::for_architecture("lstm+mamba").range_text(), "[-1,1]");
  EXPECT_EQ(ModelConfig::for_architecture("lstm+transformer").max_length(),
            ModelConfig::for_architecture("transformer").max_length());
}

TEST(Model, MixtureOfUnknownPartsIsRefused) {
  for (const char* name : {"", "+", "lstm+", "+lstm", "lstm++mamba", "lstm+mambo", "lstm mamba"}) {
    SCOPED_TRACE(name);
    EXPECT_THROW(ModelConfig::for_architecture(name), Error);
  }
  std::string many = "lstm";
  for (int i = 0; i < 2000; ++i) many += "+lstm";
  EXPECT_THROW(ModelConfig::for_architecture(many), Error);
  ModelConfig config = ModelConfig::for_architecture("lstm+mamba");
  EXPECT_THROW(io::fields_of(config).set("heads=2"), Error) << "of which?";
  EXPECT_THROW(io::fields_of(config).set("slstm.heads=2"), Error) << "no such part";
}

// The memory of attention is bounded; beyond it there is an error, not an overrun.
TEST(Model, ASequenceBeyondTheTransformersMemoryIsRefused) {
  Fixture f({"", "transformer", {"width=4", "heads=2", "max_length=5", "mlp=0"}}, 2, 7, 1);
  EXPECT_THROW(logits_of(f, {7}), Error);
  EXPECT_THROW(logits_of(f, {4, 3}), Error);
}

// What has no eigenvalues in a range takes none.
TEST(Model, ARangeIsRefusedWhereThereIsNone) {
  ModelConfig config = ModelConfig::for_architecture("lstm");
  EXPECT_NO_THROW(config.check_range());
  EXPECT_EQ(config.range_text(), "");
  io::fields_of(config).set("eigenvalues=-1,1");
  EXPECT_THROW(config.check_range(), Error);
  EXPECT_EQ(ModelConfig::for_architecture("mamba").range_text(), "[-1,1]");
}

TEST(Model, OptionsThatDoNotFitAreRefused) {
  auto make = [](const std::string& set) {
    ModelConfig config = ModelConfig::for_architecture("deltanet");
    for (const auto& each : split(set, ' ')) io::fields_of(config).set(each);
    Model(config, 3, 3);
  };
  EXPECT_THROW(make("heads=7"), Error);
  EXPECT_THROW(make("width=-4"), Error);
  EXPECT_THROW(make("eigenvalues=-1,0"), Error);
  EXPECT_THROW(make("hedas=2"), Error);
  EXPECT_THROW(make("write=false initial_state=zero"), Error);
  EXPECT_THROW(ModelConfig::for_architecture("deltanot"), Error);
}

}  // namespace
}  // namespace signet::models
