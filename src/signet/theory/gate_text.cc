#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/io/json.h"
#include "signet/theory/gate_check.h"

namespace signet::theory {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxGateSize = 256, kMaxGates = 4096;

double number(const ordered_json& value, const std::string& where) {
  if (!value.is_number()) bad_input("{}: '{}' is not a number", where, value.dump().substr(0, 40));
  return value.get<double>();
}

// Of gates that are numbers, inputs and states may be numbers, too.
Vector vector_of(const ordered_json& value, int64_t size, const std::string& where) {
  if (size == 1 && value.is_number()) return {number(value, where)};
  if (!value.is_array() || static_cast<int64_t>(value.size()) != size)
    bad_input("{}: expected {}", where,
              size == 1 ? std::string("a number") : fmt::format("a list of {} numbers", size));
  Vector result(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) result[i] = number(value[i], where);
  return result;
}

Matrix matrix_of(const ordered_json& value, const std::string& where) {
  if (value.is_number()) return matrix_of(ordered_json::array({ordered_json::array({value})}), where);
  if (!value.is_array() || value.empty() || static_cast<int64_t>(value.size()) > kMaxGateSize)
    bad_input("{}: a gate is a number or a square matrix of at most {} rows", where, kMaxGateSize);
  const int64_t n = static_cast<int64_t>(value.size());
  Matrix m(n, n);
  for (int64_t i = 0; i < n; ++i) {
    const Vector row = vector_of(value[i], n, fmt::format("{} row {}", where, i + 1));
    for (int64_t j = 0; j < n; ++j) m(i, j) = row[j];
  }
  return m;
}

}  // namespace

GateSet parse_gates(const std::string& text, const std::string& source) {
  io::JsonLimits limits;
  limits.max_depth = 6;
  const ordered_json root = io::parse_json(text, source, limits);
  const bool object = root.is_object();
  const ordered_json& gates = object ? io::json_member(root, "gates", source) : root;
  if (!gates.is_array() || gates.empty() || static_cast<int64_t>(gates.size()) > kMaxGates)
    bad_input("{}: gates is a list of 1 to {} matrices, such as [[[0,1],[1,0]], [[1,0],[0,1]]]", source,
              kMaxGates);
  GateSet set;
  set.plain = true;
  for (size_t s = 0; s < gates.size(); ++s) {
    set.gates.push_back(matrix_of(gates[s], fmt::format("{}: gate {}", source, s + 1)));
    if (set.gates[s].rows() != set.gates[0].rows())
      bad_input("{}: gate {} has {}, gate 1 has {}", source, s + 1, count_of(set.gates[s].rows(), "row"),
                set.gates[0].rows());
  }
  const int64_t n = set.gates[0].rows(), count = static_cast<int64_t>(gates.size());
  set.state = Vector(static_cast<size_t>(n), 1.0);
  for (int64_t s = 0; s < count; ++s) {
    set.letters.push_back(std::to_string(s));
    set.inputs.push_back(Vector(static_cast<size_t>(n), 0.0));
  }
  const auto choose_other = [&set] {
    const bool zero = std::all_of(set.state.begin(), set.state.end(), [](double x) { return x == 0; });
    if (set.other.empty()) set.other.assign(set.state.size(), zero ? 1.0 : 0.0);
    return set;
  };
  if (!object) return choose_other();
  for (const auto& [key, value] : root.items()) {
    if (key == "gates") continue;
    if (key == "state") {
      set.state = vector_of(value, n, source + ": state");
    } else if (key == "other") {
      set.other = vector_of(value, n, source + ": other");
    } else if (key == "letters" || key == "inputs") {
      if (!value.is_array() || static_cast<int64_t>(value.size()) != count)
        bad_input("{}: {} is a list of {}, one per gate", source, key, count);
      for (int64_t s = 0; s < count; ++s) {
        if (key == "inputs") {
          set.inputs[s] = vector_of(value[s], n, fmt::format("{}: input {}", source, s + 1));
        } else {
          if (!value[s].is_string()) bad_input("{}: letters are strings", source);
          set.letters[s] = value[s].get<std::string>();
        }
      }
    } else {
      bad_input("{}: unknown key '{}'; known are gates, letters, inputs, state, other", source, key);
    }
  }
  return choose_other();
}

}  // namespace signet::theory
