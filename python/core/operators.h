// What the front ends know of every operator: its tensors, their gradients, the shapes of what comes out.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "signet/capi/signet.h"

namespace signet::python {

// A size of an output: dimension `index` (negative: from the end) of input `tensor`, plus `add`; without a
// tensor `add` alone; kSequences: how many sequences there are.
struct Size {
  const char* tensor;
  int index;
  int64_t add;
  size_t place = 0;  // of the tensor among the inputs; kSequences: of the offsets
};
inline constexpr char kSequences[] = "N";  // an array: it is known by its address, of which there is one

struct Tensor {
  const char* name;
  size_t offset;         // in the operator's structure
  const char* gradient;  // null: it has none
  size_t gradient_offset;
};
struct Output {
  Tensor tensor;
  bool wide;                // never narrower than fp32
  std::vector<Size> shape;  // empty: that of the input `like`
};
enum class Kind { kInput, kOutput, kBuffer, kInt32, kInt64, kDouble };
struct Field {
  const char* name;
  Kind kind;
  size_t offset;
};
struct Operator {
  const char* name;
  size_t size;   // of the structure
  size_t table;  // offset of its three functions in signet_table
  size_t saved, workspace;
  const char* like;  // the input whose type the outputs have
  std::vector<Tensor> inputs;
  std::vector<Output> outputs;
  std::vector<Field> settings;  // the first `positional` of them in the order of calls
  int positional;
  std::vector<Field> extra;  // further tensors, by keyword alone

  // Every field with its interned name, for keywords.
  std::vector<Field> fields;
  std::vector<PyObject*> names;
  size_t like_place = 0;  // of the input `like`
};

std::vector<Operator>& operators();
// As a dictionary that signet._operators reads.
PyObject* describe(const Operator& op);

}  // namespace signet::python
