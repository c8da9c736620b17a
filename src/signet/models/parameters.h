// All parameters of a model in one flat buffer with named views: the optimizer, clipping and checkpoints are
// one pass each. Parameters added one after the other with the same width are adjacent, so that a fused
// projection is one matrix.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "signet/autograd/tape.h"
#include "signet/base/rng.h"
#include "signet/tensor/clear.h"
#include "signet/tensor/tensor.h"

namespace signet::models {

// Value of element i. Each parameter draws from a stream of its own, named by the parameter, and as many
// words of it for every element, so that any range of elements can be made alone.
struct Init {
  std::function<double(Rng& rng, int64_t i)> value;
  int words = 0;
  double operator()(Rng& rng, int64_t i) const { return value(rng, i); }
};
Init constant_init(double value);
Init normal_init(double deviation);
double small_deviation(int64_t width);                           // sqrt(2 / (5 width)), xLSTM's "small"
Init uniform_init(double bound);                                 // [-bound, bound]
inline constexpr double kProjectionGain = 0.17677669529663687;   // 2^-2.5: DeltaNet's and GLA's
Init xavier_uniform_init(int64_t in, int64_t out, double gain);  // bound = gain sqrt(6 / (in + out))
Init linear_default_init(int64_t in);                            // bound = 1 / sqrt(in), PyTorch's default
// Step sizes as in Mamba: softplus(value) is log-uniform in [min, max] and at least 1e-4.
Init step_size_init(double min, double max);
// Rates as in Mamba-2: exp(value) is uniform in [min, max].
Init rate_log_init(double min, double max);

inline constexpr char kEmbedding[] = "embedding.weight";  // the name of the token embedding
inline constexpr char kHead[] = "head.weight";            // and of the last matrix

struct ParameterInfo {
  std::string name;
  Shape shape;
  int64_t offset = 0;  // elements from the start of the buffer
  bool decay = true;   // weight decay applies
  Init init;
  bool only_products = false;  // read it (add_product)
  // What decays where only matrices do.
  bool matrix() const { return shape.rank() >= 2 && name != kEmbedding; }
};

class Parameters {
 public:
  int add(std::string name, Shape shape, Init init, bool decay = true);
  // A matrix that only products read (autograd::linear): in bf16 they read the copy in bf16.
  int add_product(std::string name, Shape shape, Init init) {
    const int id = add(std::move(name), shape, std::move(init));
    infos_.back().only_products = true;
    return id;
  }
  void read_in_full() {  // what was added so far is read by others, too
    for (auto& info : infos_) info.only_products = false;
  }
  // What is added from here on is the next segment: parameters that a pass needs, and whose gradients it
  // completes, together.
  void begin_segment() { segments_.push_back(size_); }

  const std::vector<ParameterInfo>& infos() const { return infos_; }
  int64_t size() const { return size_; }
  const std::vector<int64_t>& segments() const { return segments_; }  // where each begins, in elements
  // Fills `values` (size() elements of `dtype`) from the seed.
  void initialize(uint64_t seed, DType dtype, void* values) const;

 private:
  std::vector<ParameterInfo> infos_;
  std::vector<int64_t> segments_ = {0};
  int64_t size_ = 0;
};

// Gradients of matrices that no product has come to yet: the first one overwrites, so that nobody has to
// clear them before.
class FreshGradients {
 public:
  explicit FreshGradients(const Parameters& parameters);
  // Whether parameters first..last, as one matrix, have been written. Null where not only products write.
  bool* written(int first, int last);
  // All but what a product has overwritten by now, in order.
  std::vector<ElementRange> others() const;

 private:
  const Parameters& parameters_;
  std::unique_ptr<bool[]> written_;
  std::vector<int> last_;  // of the matrix that begins with a parameter; -1: none does yet
};

// The buffers a pass works on: values, and gradients when recording (null otherwise). `fresh`: what products
// may overwrite (null: nothing); it must live as long as the tape.
class Weights {
 public:
  Weights(const Parameters& parameters, DType dtype, void* values, void* gradients,
          FreshGradients* fresh = nullptr)
      : parameters_(&parameters), dtype_(dtype), values_(values), gradients_(gradients), fresh_(fresh) {}

  autograd::Var operator[](int id) const { return view(id, id, parameters_->infos()[id].shape); }
  // Parameters first..last, adjacent and of equal width, as one matrix.
  autograd::Var fused(int first, int last) const;
  DType dtype() const { return dtype_; }

 private:
  autograd::Var view(int first, int last, Shape shape) const;

  const Parameters* parameters_;
  DType dtype_;
  void* values_;
  void* gradients_;
  FreshGradients* fresh_;
};

}  // namespace signet::models
