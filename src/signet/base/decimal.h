// Bounds in decimal that hold as they are printed: rounded to the side on which they stay bounds.
#pragma once

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <string>

namespace signet {

enum class Bound { kLower, kUpper };

// A number of so many digits that is no larger, or no smaller, than x.
inline std::string bound_text(double x, Bound bound, int digits = 3) {
  std::string text = fmt::format("{:.{}g}", x, digits);
  if (!std::isfinite(x) || x == 0) return text;
  double shown = 0;
  std::from_chars(text.data(), text.data() + text.size(), shown);
  const bool upper = bound == Bound::kUpper;
  if (upper ? shown >= x : shown <= x) return text;
  // The nearest lies on the wrong side: one unit of the last digit that x has is on the other.
  const std::string all = fmt::format("{:.16e}", x);
  const double unit = std::pow(10.0, std::stoi(all.substr(all.find('e') + 1)) - (digits - 1));
  return fmt::format("{:.{}g}", upper ? shown + unit : shown - unit, digits);
}

}  // namespace signet
