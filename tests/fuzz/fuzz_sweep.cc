// Files of sweeps, with the settings of their runs where these are few.
#include "fuzz/fuzz.h"
#include "signet/train/sweep.h"

SIGNET_FUZZ(text) {
  using namespace signet;
  const auto plan = train::read_sweep_file(fuzz::file_with(text, "sweep.yaml"));
  size_t runs = 1;
  for (const auto& axis : plan.axes) runs *= axis.values.size();
  if (runs <= 16) train::plan_runs(plan, /*allow_missing=*/true);
}
