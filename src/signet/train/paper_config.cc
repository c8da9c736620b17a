#include "signet/train/paper_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::train {
namespace {

using io::ConfigNode;
using Kind = ConfigNode::Kind;

// The leaves of a document by dotted key; empty maps and lists are leaves too.
void collect(const ConfigNode& node, const std::string& prefix,
             std::map<std::string, const ConfigNode*>& leaves) {
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string key = prefix + node.keys[i];
    if (node.items[i].kind == Kind::kMap && !node.items[i].keys.empty())
      collect(node.items[i], key + ".", leaves);
    else
      leaves[key] = &node.items[i];
  }
}

// Reads keys one by one and complains about those nobody read.
class Document {
 public:
  Document(const ConfigNode& root, std::string where) : where_(std::move(where)) {
    collect(root, "", leaves_);
  }

  const ConfigNode* take(const std::string& key) {
    known_.insert(key);
    const auto found = leaves_.find(key);
    return found == leaves_.end() ? nullptr : found->second;
  }
  std::string text(const std::string& key) {
    const ConfigNode* node = take(key);
    if (!node) bad_input("{}: {} is missing", printable(where_), key);
    if (node->kind != Kind::kScalar)
      bad_node(*node, where_, "{} must be a value, not {}", key, node->kind_name());
    return node->text;
  }
  double number(const std::string& key) {
    const std::string value = text(key);
    double result = 0;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || stop != value.data() + value.size())
      bad_node(*take(key), where_, "{} must be a number, not '{}'", key, printable(value, 40));
    return result;
  }
  // The key may be absent; if it is there, it must have one of the values.
  void expect(const std::string& key, const std::vector<std::string>& allowed, const char* why) {
    const ConfigNode* node = take(key);
    if (!node) return;
    const bool fits =
        node->kind == Kind::kScalar && std::any_of(allowed.begin(), allowed.end(), [&](const auto& value) {
          return node->text == value || same_number(node->text, value);
        });
    if (!fits) bad_node(*node, where_, "{}: {} ({} expected)", key, why, join(allowed, " or "));
  }
  void ignore(const std::string& key) { take(key); }
  void refuse_the_rest() const {
    const std::vector<std::string> known(known_.begin(), known_.end());
    for (const auto& [key, node] : leaves_)
      if (!known_.count(key))
        bad_node(*node, where_, "unknown key '{}'{}; docs/paper_configs.md lists those that are understood",
                 printable(key), did_you_mean(key, known));
  }
  const std::string& where() const { return where_; }

 private:
  static bool same_number(const std::string& a, const std::string& b) {
    double x = 0, y = 0;
    const auto parse = [](const std::string& text, double& value) {
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      return error == std::errc() && stop == text.data() + text.size();
    };
    return parse(a, x) && parse(b, y) && x == y;
  }

  std::string where_;
  std::map<std::string, const ConfigNode*> leaves_;
  std::set<std::string> known_;
};

// Our layout, section by section ("model", "model.slstm").
class Builder {
 public:
  Builder() { root_.kind = Kind::kMap; }
  void set(const std::string& section, const std::string& key, const ConfigNode& value) {
    ConfigNode& inner = this->section(section);
    inner.keys.push_back(key);
    inner.items.push_back(value);
  }
  void set(const std::string& section, const std::string& key, const std::string& value) {
    ConfigNode node;
    node.kind = Kind::kScalar;
    node.text = value;
    set(section, key, node);
  }
  void set_range(bool negative) {
    ConfigNode list;
    list.kind = Kind::kList;
    for (const char* end : {negative ? "-1" : "0", "1"}) {
      list.items.emplace_back();
      list.items.back().kind = Kind::kScalar;
      list.items.back().text = end;
    }
    set("model", "eigenvalues", list);
  }
  ConfigNode take() { return std::move(root_); }

 private:
  ConfigNode& section(const std::string& path) {
    ConfigNode* node = &root_;
    for (const auto& name : split(path, '.')) node = &member(*node, name);
    return *node;
  }
  static ConfigNode& member(ConfigNode& node, const std::string& name) {
    for (size_t i = 0; i < node.keys.size(); ++i)
      if (node.keys[i] == name) return node.items[i];
    node.keys.push_back(name);
    node.items.emplace_back();
    node.items.back().kind = Kind::kMap;
    return node.items.back();
  }
  ConfigNode root_;
};

class Converter {
 public:
  Converter(const ConfigNode& root, const std::string& where) : in_(root, where) {}

  ConfigNode run() {
    training();
    dataset();
    model();
    in_.refuse_the_rest();
    return out_.take();
  }

 private:
  void map(const std::string& from, const std::string& section, const std::string& key) {
    if (const ConfigNode* node = in_.take(from)) out_.set(section, key, *node);
  }
  void map_required(const std::string& from, const std::string& section, const std::string& key) {
    in_.text(from);
    map(from, section, key);
  }

  void training() {
    map("training.batch_size", "train", "batch");
    map("training.lr", "train", "lr");
    map("training.seed", "train", "seed");
    map("training.val_every_step", "train", "validate_every");
    map_required("training.num_steps", "train", "steps");
    map("training.lr_warmup_steps", "train", "warmup");
    map("training.lr_decay_factor", "train", "min_lr_ratio");
    map("training.weight_decay", "train", "weight_decay");
    in_.expect("training.lr_decay_until_steps", {"${.num_steps}", in_.text("training.num_steps")},
               "the cosine ends with the run here");
    if (const ConfigNode* clip = in_.take("training.grad_clip_norm"); clip && clip->text != "None")
      out_.set("train", "clip", *clip);
    in_.expect("training.weight_precision", {"float32"}, "weights are fp32 here");
    // Which device, compilation and autocast are the program's business; the released code never reads
    // min_lr.
    for (const char* key : {"training.device", "training.compile", "training.amp_precision",
                            "training.enable_mixed_precision", "training.min_lr"})
      in_.ignore(key);
  }

  void dataset() {
    const std::string prefix = "dataset.kwargs.";
    in_.expect("dataset.name", {"form_language"}, "only the formal languages are tasks");
    // The release draws brackets without '*'.
    const std::map<std::string, const char*> languages = {
        {"parity", "parity"},
        {"even_pairs", "even-pairs"},
        {"cycle_nav", "cycle-navigation"},
        {"modular_arithmetic", "modular-arithmetic"},
        {"modular_arithmetic_with_brackets", "modular-arithmetic-brackets-no-mult"},
    };
    const std::string language = in_.text(prefix + "synth_lang_type");
    const auto found = languages.find(language);
    if (found == languages.end()) {
      std::vector<std::string> names;
      for (const auto& [name, task] : languages) names.push_back(name);
      bad_node(*in_.take(prefix + "synth_lang_type"), in_.where(), "unknown language '{}'{}; there are {}",
               printable(language, 60), did_you_mean(language, names), join(names, ", "));
    }
    out_.set("task", "name", found->second);
    in_.expect(prefix + "enable_mask", {"true"}, "only the answer is scored");
    map(prefix + "min_sequence_length", "train", "min_length");
    map(prefix + "max_sequence_length", "train", "max_length");
    map(prefix + "count.validation", "train", "validate_samples");
    map(prefix + "count.test", "eval", "samples");
    map(prefix + "subpar.validation.min_sequence_length", "eval", "min_length");
    map(prefix + "subpar.validation.max_sequence_length", "eval", "max_length");
    // training.seed is the one that counts, samples are always fresh, rows are as long as they need to be, a
    // task knows its vocabulary (three of the files name a smaller one), and what is reported there is the
    // validation.
    for (const char* key : {"seed", "vocab_size", "context_length", "count.train",
                            "subpar.test.min_sequence_length", "subpar.test.max_sequence_length"})
      in_.ignore(prefix + key);
  }

  void model() {
    in_.expect("model.context_length", {"${dataset.kwargs.context_length}"}, "follows the data set");
    in_.expect("model.vocab_size", {"${dataset.kwargs.vocab_size}"}, "follows the data set");
    in_.expect("model.tie_weights", {"false"}, "embedding and head are separate");
    in_.expect("model.dropout", {"0"}, "there is no dropout");
    in_.expect("model.add_embedding_dropout", {"false"}, "there is no dropout");
    const std::string name = in_.text("model.name");
    // The release shrinks all of DeltaNet and Mamba, and the matrices of xLSTM.
    if (name.rfind("xlstm", 0) == 0) {
      in_.expect("model.weight_decay_on_embedding", {"false"}, "of xLSTM only matrices decay");
      out_.set("train", "decays", "matrices");
    } else {
      in_.ignore("model.weight_decay_on_embedding");
    }
    if (name == "delta_net") {
      in_.expect("model.layer_type", {"delta_net"}, "the layer of delta_net");
      sizes("n_layers", "d_model");
      map("model.n_heads", "model", "heads");
      delta_net();
    } else if (name == "mamba") {
      in_.expect("model.layer_type", {"mamba"}, "the layer of mamba");
      sizes("n_layers", "d_model");
      out_.set("model", "architecture", "mamba");
      out_.set("model", "conv", "1");  // as released; the paper says 4
      out_.set_range(boolean("model.positive_and_negative"));
    } else if (name == "simple_recurrent") {
      sizes("num_blocks", "embedding_dim");
      simple_recurrent();
    } else if (name.rfind("xlstm", 0) == 0) {
      sizes("num_blocks", "embedding_dim");
      xlstm();
    } else {
      bad_node(*in_.take("model.name"), in_.where(),
               "unknown model '{}'; there are delta_net, mamba, simple_recurrent and xlstm00 to xlstm11",
               printable(name, 60));
    }
  }

  void sizes(const char* blocks, const char* width) {
    map_required(std::string("model.") + blocks, "model", "blocks");
    map_required(std::string("model.") + width, "model", "width");
  }

  bool boolean(const std::string& key) {
    const std::string value = in_.text(key);
    if (value != "true" && value != "false")
      bad_node(*in_.take(key), in_.where(), "{} must be true or false", key);
    return value == "true";
  }

  void delta_net() {
    out_.set("model", "architecture", "deltanet");
    out_.set("model", "conv", boolean("model.use_short_conv") ? "4" : "0");
    const double scale = in_.number("model.sigmoid_scale");
    if (scale != 1 && scale != 2)
      bad_node(*in_.take("model.sigmoid_scale"), in_.where(),
               "model.sigmoid_scale must be 1 (eigenvalues in [0,1]) or 2 (in [-1,1])");
    out_.set_range(scale == 2);
  }

  // Toy layers of that repository; the nearest model here, with a residual stream and without their second
  // norm.
  void simple_recurrent() {
    const std::string layer = in_.text("model.layer_type");
    in_.expect("model.step_size", {"1"}, "the update is not scaled");
    out_.set("model", "mlp", "0");
    if (layer == "delta_rule_fla") {
      map("model.num_heads", "model", "heads");
      in_.expect("model.use_gate", {"false"}, "there is no output gate");
      in_.expect("model.sigmoid_pre_scale", {"1"}, "the gate's input is not scaled");
      in_.expect("model.sigmoid_shift", {"0"}, "the gate is not shifted");
      delta_net();
    } else if (layer == "diagonal") {
      in_.expect("model.activation_func", {"sigmoid", "tanh"}, "the gate of the diagonal");
      out_.set("model", "architecture", "gla");
      out_.set("model", "heads", "1");
      out_.set_range(in_.text("model.activation_func") == "tanh");
    } else if (layer == "full_matrix") {
      out_.set("model", "architecture", "dense");
    } else {
      bad_node(*in_.take("model.layer_type"), in_.where(),
               "unknown layer '{}'; there are delta_rule_fla, diagonal and full_matrix",
               printable(layer, 60));
    }
  }

  // slstm_at lists the blocks that are sLSTM; the others are mLSTM.
  void xlstm() {
    in_.ignore("model.slstm_block");
    in_.ignore("model.mlstm_block");
    const std::vector<bool> slstm = slstm_blocks();
    const bool all = std::find(slstm.begin(), slstm.end(), false) == slstm.end();
    const bool none = std::find(slstm.begin(), slstm.end(), true) == slstm.end();
    const ConfigNode* conv = in_.take("model.slstm_block.slstm.conv1d_kernel_size");
    const ConfigNode* slstm_heads = in_.take("model.slstm_block.slstm.num_heads");
    const ConfigNode* mlstm_heads = in_.take("model.mlstm_block.mlstm.num_heads");
    if (!all) out_.set_range(false);
    std::vector<std::string> names;
    for (const bool is_slstm : slstm) names.emplace_back(is_slstm ? "slstm" : "mlstm");
    const bool mixed = !all && !none;
    out_.set("model", "architecture", mixed ? join(names, "+") : names[0]);
    if (!none) {
      const std::string section = mixed ? "model.slstm" : "model";
      if (slstm_heads) out_.set(section, "heads", *slstm_heads);
      conv ? out_.set(section, "conv", *conv) : out_.set(section, "conv", "4");  // that code's default
    }
    if (!all && mlstm_heads) out_.set(mixed ? "model.mlstm" : "model", "heads", *mlstm_heads);
  }

  // Whether each block is sLSTM.
  std::vector<bool> slstm_blocks() {
    const double count = in_.number("model.num_blocks");
    if (!(count >= 1 && count <= 1024 && count == std::floor(count)))
      bad_node(*in_.take("model.num_blocks"), in_.where(),
               "model.num_blocks must be a number from 1 to 1024");
    std::vector<bool> slstm(static_cast<size_t>(count));
    const ConfigNode* at = in_.take("model.slstm_at");
    if (!at) return slstm;
    if (at->kind != Kind::kList) bad_node(*at, in_.where(), "model.slstm_at must be a list of blocks");
    for (const auto& item : at->items) {
      size_t block = 0;
      const char* end = item.text.data() + item.text.size();
      const auto [stop, error] = std::from_chars(item.text.data(), end, block);
      if (item.kind != Kind::kScalar || error != std::errc() || stop != end || block >= slstm.size())
        bad_node(item, in_.where(), "model.slstm_at lists blocks from 0 to {}", slstm.size() - 1);
      slstm[block] = true;
    }
    return slstm;
  }

  Document in_;
  Builder out_;
};

}  // namespace

bool is_paper_config(const ConfigNode& root) {
  return root.kind == Kind::kMap && root.find("training") && root.find("dataset");
}

ConfigNode from_paper_config(const ConfigNode& root, const std::string& where) {
  return Converter(root, where).run();
}

}  // namespace signet::train
