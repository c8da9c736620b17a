#include "signet/io/config_schema.h"

#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

using test::expect_bad_input;
using test::expect_error;

enum class Colour { kRed, kBlue };

struct Inner {
  double eps = 1e-6;
  void describe(Fields& fields) { fields.field("eps", eps, "a small number", {0, 1}); }
};

struct Model {
  int64_t width = 64;
  std::string name = "deltanet";
  std::string head = "normal";
  Colour colour = Colour::kRed;
  Inner norm;
  void describe(Fields& fields) {
    fields.field("width", width, "channels", {1, 65536});
    fields.field("name", name, "a name");
    fields.field_enum("head", head, "initialisation", {"normal", "linear"});
    fields.field_enum("colour", colour, "eigenvalues", {{"0,1", Colour::kRed}, {"-1,1", Colour::kBlue}});
    fields.section("norm", norm);
  }
};

struct Train {
  double lr = 1e-3;
  bool quiet = false;
  int64_t seed = 0;
  std::vector<int64_t> lengths = {40, 256};
  std::vector<double> betas = {0.9, 0.999};
  std::vector<std::string> tags;
  void describe(Fields& fields) {
    fields.field("lr", lr, "peak learning rate", {0, 10});
    fields.field("quiet", quiet, "say nothing");
    fields.field("seed", seed, "any whole number");
    fields.field("lengths", lengths, "evaluated lengths", {1, 1'000'000});
    fields.field("betas", betas, "AdamW", {0, 1});
    fields.field("tags", tags, "free words");
  }
};

struct RunConfig {
  Model model;
  Train train;
  void describe(Fields& fields) {
    fields.section("model", model);
    fields.section("train", train);
  }
};

void load(RunConfig& run, const std::string& yaml) {
  fields_of(run).load(parse_yaml(yaml, "c.yaml"), "c.yaml");
}

TEST(ConfigSchema, ReadsEveryType) {
  RunConfig run;
  load(run,
       "model:\n  width: 128\n  name: 'my: model'\n  head: linear\n  colour: -1,1\n  norm: {eps: 1e-5}\n"
       "train:\n  lr: 3e-3\n  quiet: true\n  seed: -7\n  lengths: [1, 2, 3]\n  betas: []\n  tags: [a, \"b "
       "c\"]\n");
  EXPECT_EQ(run.model.width, 128);
  EXPECT_EQ(run.model.name, "my: model");
  EXPECT_EQ(run.model.head, "linear");
  EXPECT_EQ(run.model.colour, Colour::kBlue);
  EXPECT_EQ(run.model.norm.eps, 1e-5);
  EXPECT_EQ(run.train.lr, 3e-3);
  EXPECT_TRUE(run.train.quiet);
  EXPECT_EQ(run.train.seed, -7);
  EXPECT_EQ(run.train.lengths, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(run.train.betas.empty());
  EXPECT_EQ(run.train.tags, (std::vector<std::string>{"a", "b c"}));
}

TEST(ConfigSchema, AbsentKeysAndEmptySectionsKeepDefaults) {
  RunConfig run;
  Fields fields = fields_of(run);
  fields.load(parse_yaml("model:\ntrain:\n  lr: 0.5\n", "c.yaml"), "c.yaml");
  EXPECT_EQ(run.model.width, 64);
  EXPECT_TRUE(fields.given("train.lr"));
  EXPECT_FALSE(fields.given("model.width"));
}

TEST(ConfigSchema, AnEnumNameMayBeWrittenAsAList) {
  RunConfig run;
  load(run, "model: {colour: [-1, 1]}");
  EXPECT_EQ(run.model.colour, Colour::kBlue);
}

TEST(ConfigSchema, WritingAndReadingBackIsExact) {
  RunConfig run;
  run.model.width = 777;
  run.model.name = "yes\n\"quoted\" \\ ~ # é \x01";
  run.model.colour = Colour::kBlue;
  run.model.norm.eps = 0.1 + 0.2;
  run.train.lr = 5e-324;
  run.train.betas = {1.0 / 3, -0.0, 1};
  run.train.seed = INT64_MIN;
  run.train.tags = {"", " ", "null", "1.5", "- x", "a: b", "[", "it's"};
  RunConfig back;
  const std::string yaml = fields_of(run).to_yaml();
  load(back, yaml);
  EXPECT_EQ(fields_of(back).to_yaml(), yaml);
  EXPECT_EQ(back.model.name, run.model.name) << yaml;
  EXPECT_EQ(back.model.norm.eps, run.model.norm.eps);
  EXPECT_EQ(back.train.lr, run.train.lr);
  EXPECT_EQ(back.train.seed, run.train.seed);
  EXPECT_EQ(back.train.tags, run.train.tags) << yaml;
  EXPECT_TRUE(std::signbit(back.train.betas[1]));
}

TEST(ConfigSchema, WritesNestedSections) {
  struct Interleaved {
    Inner norm;
    int64_t a = 1;
    Train train;
    void describe(Fields& fields) {
      fields.section("s", norm);
      fields.field("a", a, "");
      fields.field("s.b", a, "");  // the section again, later
    }
  } config;
  EXPECT_EQ(fields_of(config).to_yaml(), "s:\n  eps: 1e-06\n  b: 1\na: 1\n");
}

TEST(ConfigSchema, SetFromTheCommandLine) {
  RunConfig run;
  Fields fields = fields_of(run);
  fields.set("model.width=32");
  fields.set("train.lr=1e-4");
  fields.set("model.name=a=b: [c");
  fields.set("train.lengths=5,6");
  fields.set("train.tags=[x, y]");
  fields.set("model.colour=-1,1");
  EXPECT_EQ(run.model.width, 32);
  EXPECT_EQ(run.train.lr, 1e-4);
  EXPECT_EQ(run.model.name, "a=b: [c");
  EXPECT_EQ(run.train.lengths, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(run.train.tags, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(run.model.colour, Colour::kBlue);
  EXPECT_TRUE(fields.given("model.width"));

  const auto usage = [&](const std::string& text, const std::string& part) {
    SCOPED_TRACE(text);
    expect_error([&] { fields.set(text); }, ErrorCode::kUsage, part);
  };
  usage("model.widht=3", "did you mean 'model.width'?");
  usage("width=3", "did you mean 'model.width'?");
  usage("model=3", "unknown key 'model'");
  usage("model.width", "must look like section.key=value");
  usage("=3", "must look like");
  usage("model.width=", "a whole number from 1 to 65536");
  usage("model.width=0", "a whole number from 1 to 65536, not '0'");
  usage("train.lengths=5,,6", "a list of whole numbers");
  usage("train.lengths=[5", "train.lengths");
  usage("model.head=linera", "did you mean 'linear'?");
}

TEST(ConfigSchema, UnknownKeysNameTheNearest) {
  RunConfig run;
  const auto bad = [&](const std::string& yaml, const std::string& part) {
    SCOPED_TRACE(yaml);
    expect_bad_input([&] { load(run, yaml); }, part);
  };
  bad("model:\n  widht: 3\n", "c.yaml:2:10: unknown key 'model.widht' (did you mean 'model.width'?)");
  bad("train:\n  width: 3\n", "did you mean 'model.width'?");
  bad("widht: 3", "unknown key 'widht'");
  bad("trian:\n  lr: 1\n", "unknown key 'trian'");
  bad("model: 3", "'model' is a section");
  bad("model: [1]", "'model' is a section");
  bad("[1, 2]", "must hold 'key: value' lines");
  bad("just text", "must hold 'key: value' lines");
  bad("model: {norm: {eps: {x: 1}}}", "model.norm.eps must be a finite number from 0 to 1, not a section");
}

TEST(ConfigSchema, WrongValuesNameTheAllowedOnes) {
  RunConfig run;
  for (const char* value :
       {"-1",          "0",   "65537", "1.5",    "1e3",  "nan",    "inf", "1e400", "99999999999999999999",
        "0x10",        "''",  "'64'",  "\"64\"", "[64]", "{a: 1}", "",    "~",     "null",
        "64 channels", "--4", "+-4",   "+"}) {
    SCOPED_TRACE(value);
    expect_bad_input([&] { load(run, std::string("model:\n  width: ") + value); },
                     "model.width must be a whole number from 1 to 65536");
  }
  for (const char* value :
       {"nan", ".nan", "NaN", "inf", "-inf", ".inf", "1e400", "-1e-9", "10.5", "'1'", "", "[1]", "1,5"}) {
    SCOPED_TRACE(value);
    expect_bad_input([&] { load(run, std::string("train:\n  lr: ") + value); },
                     "train.lr must be a finite number from 0 to 10");
  }
  for (const char* value : {"yes", "1", "True", "'true'", "", "[true]"}) {
    SCOPED_TRACE(value);
    expect_bad_input([&] { load(run, std::string("train:\n  quiet: ") + value); },
                     "train.quiet must be true or false");
  }
  expect_bad_input([&] { load(run, "train: {betas: [0.5, nan]}"); }, "a list of finite numbers from 0 to 1");
  expect_bad_input([&] { load(run, "train: {lengths: 5}"); }, "a list of whole numbers");
  expect_bad_input([&] { load(run, "model: {name: [x]}"); }, "a string");
  expect_bad_input([&] { load(run, "model: {head: normla}"); },
                   "one of normal | linear, not 'normla' (did you mean 'normal'?)");
  expect_bad_input([&] { load(run, "model: {head: }"); }, "one of normal | linear");
  // Nothing above may have changed the values.
  EXPECT_EQ(fields_of(run).to_yaml(), [] {
    RunConfig fresh;
    return fields_of(fresh).to_yaml();
  }());
}

TEST(ConfigSchema, ListsKeysWithHelp) {
  RunConfig run;
  const Fields fields = fields_of(run);
  ASSERT_EQ(fields.all().size(), 11u);
  EXPECT_EQ(fields.all()[0].key, "model.width");
  EXPECT_EQ(fields.all()[0].help, "channels");
  EXPECT_EQ(fields.all()[0].allowed, "a whole number from 1 to 65536");
  EXPECT_EQ(fields.all()[0].write(), "64");
  EXPECT_EQ(fields.all()[7].allowed, "a whole number");
  expect_error([&] { fields.given("nonsense"); }, ErrorCode::kFailure, "nonsense");
}

TEST(ConfigSchema, DescribingAKeyTwiceIsAFault) {
  struct Twice {
    int64_t a = 0;
    void describe(Fields& fields) {
      fields.field("a", a, "");
      fields.field("a", a, "");
    }
  } config;
  expect_error([&] { fields_of(config); }, ErrorCode::kFailure, "described twice");
}

}  // namespace
}  // namespace signet::io
