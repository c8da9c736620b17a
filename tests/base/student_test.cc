#include "signet/base/student.h"

#include <gtest/gtest.h>

#include <utility>

namespace signet {
namespace {

// The usual tables of t at 0.975, by n - 1.
TEST(Student, HasTheValuesOfTheTables) {
  for (const auto& [freedom, t] : {std::pair{1, 12.7062},
                                   {2, 4.3027},
                                   {5, 2.5706},
                                   {10, 2.2281},
                                   {11, 2.2010},
                                   {12, 2.1788},
                                   {20, 2.0860},
                                   {30, 2.0423},
                                   {63, 1.9983},
                                   {120, 1.9799},
                                   {1'000'000'000, 1.959964}})
    EXPECT_NEAR(student_95(freedom + 1), t, 2e-4) << freedom;
  for (int n = 3; n < 100; ++n) EXPECT_LT(student_95(n), student_95(n - 1)) << n;
}

}  // namespace
}  // namespace signet
