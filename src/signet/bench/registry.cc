#include "signet/bench/bench.h"

namespace signet::bench {

// One declaration and one line per operator.
std::vector<Case> delta_rule_cases();
std::vector<Case> gated_linear_cases();
std::vector<Case> gated_rnn_cases();
std::vector<Case> gemm_cases();
std::vector<Case> norm_cases();
std::vector<Case> recogniser_cases();
std::vector<Case> selective_scan_cases();
std::vector<Case> train_step_cases();

#ifdef SIGNET_WITH_CUDA
std::vector<Case> attention_cuda_cases(const Device& device);
std::vector<Case> delta_rule_cuda_cases(const Device& device);
std::vector<Case> gated_linear_cuda_cases(const Device& device);
std::vector<Case> gated_rnn_cuda_cases(const Device& device);
std::vector<Case> gemm_cuda_cases(const Device& device);
std::vector<Case> head_loss_cuda_cases(const Device& device);
std::vector<Case> mlstm_cuda_cases(const Device& device);
std::vector<Case> norm_cuda_cases(const Device& device);
std::vector<Case> rows_cuda_cases(const Device& device);
std::vector<Case> selective_scan_cuda_cases(const Device& device);
std::vector<Case> table3_cuda_cases(const Device& device);
std::vector<Case> train_cuda_cases(const Device& device);
#define SIGNET_ON_GPU(cases) cases
#else
#define SIGNET_ON_GPU(cases) nullptr
#endif

const std::vector<Operator>& operators() {
  static const std::vector<Operator> table = {
      {"gemm", "matrix products of the models' projections", gemm_cases, SIGNET_ON_GPU(gemm_cuda_cases)},
      {"norm", "RMS and layer normalisation", norm_cases, SIGNET_ON_GPU(norm_cuda_cases)},
      {"delta_rule", "DeltaNet and DeltaProduct", delta_rule_cases, SIGNET_ON_GPU(delta_rule_cuda_cases)},
      {"gated_linear", "GLA, Mamba-2 and mLSTM", gated_linear_cases, SIGNET_ON_GPU(gated_linear_cuda_cases)},
      {"selective_scan", "Mamba", selective_scan_cases, SIGNET_ON_GPU(selective_scan_cuda_cases)},
      {"recogniser", "compiled automata reading a million letters", recogniser_cases},
      {"gated_rnn", "sLSTM and LSTM", gated_rnn_cases, SIGNET_ON_GPU(gated_rnn_cuda_cases)},
      {"train", "one update of a whole model; flops of its matrix products alone", train_step_cases,
       SIGNET_ON_GPU(train_cuda_cases)},
#ifdef SIGNET_WITH_CUDA
      {"attention", "softmax attention with rotary positions, GPU only", nullptr, attention_cuda_cases},
      {"head_loss", "the last matrix with its loss, GPU only", nullptr, head_loss_cuda_cases},
      {"rows", "convolution, SwiGLU and the embedding's gradient, GPU only", nullptr, rows_cuda_cases},
      {"mlstm", "mLSTM's memory over short sequences, GPU only", nullptr, mlstm_cuda_cases},
      {"table3", "one update of every model of table 3, GPU only", nullptr, table3_cuda_cases},
#endif
  };
  return table;
}

}  // namespace signet::bench
