/* Parity with one reflection: a state of one number, multiplied by 1 - beta = -1 at every 1 of the input. The
 * running parity of 0 1 1 0 1 is 0 1 0 0 1, and the last state decodes on, one token a call. */
#include <stdio.h>

#include "signet/capi/signet.h"

enum { kTime = 5 };

static signet_tensor vector(float* data, int rank, int64_t time) {
  signet_tensor t = {0};
  int i;
  t.data = data, t.type = SIGNET_FLOAT32, t.rank = rank;
  for (i = 0; i < rank; ++i) t.shape[i] = 1, t.strides[i] = i == 0 ? time : 1;
  if (time > 0) t.shape[1] = time;
  return t;
}

int main(void) {
  float one[kTime] = {1, 1, 1, 1, 1}, zero[kTime] = {0}, beta[kTime] = {0, 2, 2, 0, 2}, o[kTime], state = 1;
  const float expected[kTime] = {1, -1, 1, 1, -1};
  int t;
  signet_delta_rule call = {0};
  call.size = sizeof call;
  call.scale = 1;
  call.q = vector(one, 4, kTime), call.k = vector(one, 4, kTime), call.v = vector(zero, 4, kTime);
  call.beta = vector(beta, 3, kTime), call.o = vector(o, 4, kTime);
  call.initial_state = call.final_state = vector(&state, 4, 0);
  if (signet_delta_rule_forward(&call) != SIGNET_OK) {
    fprintf(stderr, "%s\n", signet_last_error());
    return 1;
  }
  for (t = 0; t < kTime; ++t) {
    printf("%d", o[t] < 0);
    if (o[t] != expected[t]) return 1;
  }
  printf(" (%s, %s)\n", signet_version(), signet_features());
  call.q.shape[1] = call.k.shape[1] = call.v.shape[1] = call.beta.shape[1] = call.o.shape[1] = 1;
  beta[0] = 2;
  for (t = 0; t < 3; ++t)
    if (signet_delta_rule_forward(&call) != SIGNET_OK || o[0] != (t % 2 ? -1 : 1)) return 1;
  return 0;
}
