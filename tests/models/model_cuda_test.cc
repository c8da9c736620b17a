// Whole models on the GPU: loss and every gradient against the CPU. On the GPU only the scored rows of the
// last mixing are asked for, and memory begins as NaN: a row that nobody wrote must not be used.
#include "signet/autograd/ops.h"
#include "signet/base/text.h"
#include "signet/kernels/adamw/adamw.h"
#include "signet/models/model.h"
#include "support/check.h"
#include "support/cuda.h"

namespace signet::models {
namespace {

constexpr int64_t kVocabulary = 3, kClasses = 4, kBatch = 14, kTime = 37;  // enough tokens for windows

struct Pass {
  double loss = 0;
  std::vector<float> gradient;
};

Pass run(const Model& model, const std::vector<float>& weights, const std::vector<int32_t>& tokens,
         const std::vector<int32_t>& scored, const std::vector<int32_t>& targets, const Device& device) {
  const int64_t bytes = static_cast<int64_t>(weights.size() * sizeof(float)), ints = sizeof(int32_t);
  auto upload = [&](const void* from, int64_t size) {
    DeviceBuffer to(device.kind, size);
    copy_to_device(device, to.data(), from, size);
    return to;
  };
  const DeviceBuffer values = upload(weights.data(), bytes), gradient(device.kind, bytes),
                     loss(device.kind, sizeof(double)),
                     token = upload(tokens.data(), static_cast<int64_t>(tokens.size()) * ints),
                     at = upload(scored.data(), static_cast<int64_t>(scored.size()) * ints),
                     target = upload(targets.data(), static_cast<int64_t>(targets.size()) * ints);
  fill_zero(device, gradient.data(), bytes);
  Arena arena(device.kind), host;
  const std::vector<uint8_t> nan(int64_t{64} << 20, 0xff);
  copy_to_device(device, arena.allocate(static_cast<int64_t>(nan.size())), nan.data(),
                 static_cast<int64_t>(nan.size()));
  arena.reset();
  Tape tape(arena, host, {DType::kF32, device}, true);
  const Weights view(model.parameters(), DType::kF32, values.data(), gradient.data());
  const auto rows = static_cast<int64_t>(scored.size());
  autograd::Sequence sequence{kBatch, kTime};
  if (device.kind == DeviceKind::kCuda) sequence.read = at.as<int32_t>();
  const Var logits = model.forward(tape, view, token.as<int32_t>(), sequence, at.as<int32_t>(), rows);
  autograd::cross_entropy(tape, logits, target.as<int32_t>(), rows, loss.as<double>(), nullptr);
  tape.backward();
  Pass result;
  result.gradient.resize(weights.size());
  copy_to_host(device, &result.loss, loss.data(), sizeof(double));
  copy_to_host(device, result.gradient.data(), gradient.data(), bytes);
  return result;
}

TEST(ModelCuda, GradientsMatchTheCpu) {
  SIGNET_NEEDS_GPU();
  struct Variant {
    std::string architecture;
    std::vector<std::string> set = {};
  };
  for (const auto& [architecture, set] :
       std::vector<Variant>{{"deltanet"},
                            {"deltanet", {"beta_margin=0.05"}},  // windows sum what clamped gates tell apart
                            {"deltanet", {"output_gate=true"}},  // needs all rows of what is read
                            {"deltanet", {"write=false", "heads=2", "head_dim=5"}},  // learned states
                            {"gated-deltanet"},
                            {"gated-deltaproduct"},
                            {"gated-deltaproduct", {"beta_margin=0.05", "beta_gain=2", "decay_margin=0.05"}},
                            {"kda", {"decay_margin=0.05"}},
                            {"gla"},
                            {"mamba"},
                            {"mamba2"},
                            {"mlstm"},
                            {"slstm"},
                            {"lstm"},
                            {"transformer"},
                            {"dense"},
                            {"pd"},
                            {"slstm+mlstm"}}) {
    for (const char* range : {"eigenvalues=-1,1", "eigenvalues=0,1"}) {
      SCOPED_TRACE(testing::Message() << architecture << " " << join(set, " ") << " " << range);
      ModelConfig config = ModelConfig::for_architecture(architecture);
      io::Fields fields = io::fields_of(config);
      for (const auto& assignment : set) fields.set(assignment);
      if (config.has_range()) fields.set(range);
      const Model model(config, kVocabulary, kClasses);
      std::vector<float> weights(static_cast<size_t>(model.parameters().size()));
      model.parameters().initialize(3, DType::kF32, weights.data());
      Rng rng(5);
      std::vector<int32_t> tokens(kBatch * kTime), scored, targets;
      for (auto& t : tokens) t = static_cast<int32_t>(rng.below(kVocabulary));
      for (int64_t b = 0; b < kBatch; ++b) {
        scored.push_back(static_cast<int32_t>(b * kTime + rng.below(kTime)));
        targets.push_back(static_cast<int32_t>(rng.below(kClasses)));
      }
      const Pass cpu = run(model, weights, tokens, scored, targets, Device{});
      const OpenDevice device = open_device("cuda");
      const Pass gpu = run(model, weights, tokens, scored, targets, device);
      EXPECT_NEAR(gpu.loss, cpu.loss, 1e-4 * std::abs(cpu.loss));
      for (const auto& info : model.parameters().infos()) {
        auto part = [&](const std::vector<float>& all) {
          return std::vector<float>(all.begin() + info.offset, all.begin() + info.offset + info.shape.size());
        };
        EXPECT_LT(test::relative_error(part(gpu.gradient), part(cpu.gradient)), 2e-4) << info.name;
      }
    }
  }
}

// In bf16 ranks send each other only the copy in bf16 of matrices that nothing but products reads: the fp32
// of others may be anything.
TEST(ModelCuda, ProductsReadTheCopyInBf16Alone) {
  SIGNET_NEEDS_GPU();
  const OpenDevice open = open_device("cuda");
  const Device& device = open;
  constexpr int64_t kRows = 6, kLength = 64;
  for (const std::string architecture : {"deltanet", "gated-deltanet", "gated-deltaproduct", "kda", "gla",
                                         "mamba", "mamba2", "mlstm", "slstm", "transformer"})
    for (const int64_t vocabulary : {int64_t{3}, int64_t{1100}})
      for (const auto recompute : {Recompute::kNone, Recompute::kLight, Recompute::kBlock}) {
        SCOPED_TRACE(testing::Message() << architecture << " with " << vocabulary << " words");
        const Model model(ModelConfig::for_architecture(architecture), vocabulary, vocabulary);
        const auto size = model.parameters().size();
        std::vector<float> weights(static_cast<size_t>(size)), broken;
        model.parameters().initialize(3, DType::kF32, weights.data());
        broken = weights;
        int64_t products = 0;
        for (const auto& info : model.parameters().infos())
          if (info.only_products) {
            products += info.shape.size();
            std::fill_n(broken.begin() + info.offset, info.shape.size(),
                        std::numeric_limits<float>::quiet_NaN());
          }
        EXPECT_GT(products, 0);
        std::vector<int32_t> tokens(kRows * kLength), targets(tokens.size());
        Rng rng(5);
        for (auto* list : {&tokens, &targets})
          for (auto& t : *list) t = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
        const auto bytes = static_cast<int64_t>(weights.size() * sizeof(float));
        const auto on_gpu = [&](const void* from, int64_t count) {
          DeviceBuffer to(DeviceKind::kCuda, count);
          copy_to_device(device, to.data(), from, count);
          return to;
        };
        const auto ints = static_cast<int64_t>(tokens.size() * sizeof(int32_t));
        const DeviceBuffer token = on_gpu(tokens.data(), ints), target = on_gpu(targets.data(), ints),
                           values = on_gpu(weights.data(), bytes), narrow(DeviceKind::kCuda, bytes / 2);
        kernels::narrow_weights(size, values.as<float>(), narrow.as<bf16>(), Cuda{device.stream});
        const auto pass = [&](const std::vector<float>& wide) {
          const DeviceBuffer gradient(DeviceKind::kCuda, bytes), loss(DeviceKind::kCuda, sizeof(double));
          fill_zero(device, gradient.data(), bytes);
          copy_to_device(device, values.data(), wide.data(), bytes);
          Arena arena(DeviceKind::kCuda), host;
          autograd::Context context{DType::kBF16, device};
          context.parameters = values.as<float>(), context.narrow_parameters = narrow.as<bf16>();
          Tape tape(arena, host, context, true);
          const Weights view(model.parameters(), DType::kF32, values.data(), gradient.data());
          const int64_t rows = kRows * kLength;
          const Var hidden = model.hidden(tape, view, token.as<int32_t>(), {kRows, kLength}, nullptr, rows,
                                          nullptr, recompute);
          const auto predictions = tape.lasting<int32_t>(rows);
          model.loss(tape, view, hidden, target.as<int32_t>(), rows, loss.as<double>(), predictions);
          tape.backward();
          Pass result;
          result.gradient.resize(weights.size());
          copy_to_host(device, &result.loss, loss.data(), sizeof(double));
          copy_to_host(device, result.gradient.data(), gradient.data(), bytes);
          return result;
        };
        try {
          const Pass right = pass(weights), same = pass(broken);
          EXPECT_TRUE(std::isfinite(right.loss));
          EXPECT_EQ(same.loss, right.loss);
          EXPECT_TRUE(same.gradient == right.gradient);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();  // it has no bf16
        }
      }
}

}  // namespace
}  // namespace signet::models
