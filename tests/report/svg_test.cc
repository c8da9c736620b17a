#include "signet/report/svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "report/well_formed.h"
#include "signet/report/complex_plane.h"
#include "signet/report/svg_graph.h"

namespace signet::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Chart unit_chart() { return Chart(400, 200, {Scale::kLinear, 0, 10, "x"}, {Scale::kLinear, 0, 1, ""}); }

size_t occurrences(const std::string& text, const std::string& piece) {
  size_t n = 0;
  for (size_t at = text.find(piece); at != text.npos; at = text.find(piece, at + 1)) ++n;
  return n;
}

TEST(Scale, MapsEndsAndMiddle) {
  const Scale linear(Scale::kLinear, 0, 10, 100, 200), log(Scale::kLog, 1, 10000, 0, 100);
  EXPECT_DOUBLE_EQ(linear(0), 100);
  EXPECT_DOUBLE_EQ(linear(2.5), 125);
  EXPECT_DOUBLE_EQ(log(100), 50);
  EXPECT_DOUBLE_EQ(log(-3), 0);  // no logarithm: clamped
}

TEST(Scale, TicksAreRoundAndInside) {
  EXPECT_EQ(Scale(Scale::kLinear, 0, 256, 0, 1).ticks(6), (std::vector<double>{0, 50, 100, 150, 200, 250}));
  EXPECT_EQ(Scale(Scale::kLinear, -0.15, 1.08, 0, 1).ticks(5), (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(Scale(Scale::kLog, 30, 1e6, 0, 1).ticks(8), (std::vector<double>{100, 1000, 1e4, 1e5, 1e6}));
  for (auto kind : {Scale::kLinear, Scale::kLog})
    for (auto [low, high] : {std::pair{1.0, 1.0},
                             {1e-30, 1e30},
                             {kNan, kNan},
                             {5.0, 2.0},
                             {0.0, kInfinity},
                             {-1e308, 1e308},
                             {1e308, 1e308},
                             {-1e308, -1e308},
                             {1e-320, 1e308}}) {
      const Scale scale(kind, low, high, 0, 1);
      const auto ticks = scale.ticks(6);
      EXPECT_LE(ticks.size(), 24u);
      for (double tick : ticks) EXPECT_TRUE(std::isfinite(tick));
      for (double value : {1.0, 1e308, -1e308, 1e-320}) EXPECT_TRUE(std::isfinite(scale(value)));
    }
}

TEST(ShortNumber, IsShort) {
  for (auto [value, text] : {std::pair{0.0, "0"},
                             {-0.0, "0"},
                             {0.25, "0.25"},
                             {-1.0, "−1"},
                             {40.0, "40"},
                             {1000.0, "1k"},
                             {1234.0, "1234"},
                             {100000.0, "100k"},
                             {1e6, "1M"},
                             {2.5e9, "2.5G"},
                             {1e-4, "1e-4"},
                             {kNan, "–"},
                             {kInfinity, "–"}})
    EXPECT_EQ(short_number(value), text) << value;
}

TEST(TickLabels, AreOfOneStyle) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(tick_labels({0, 250, 500, 750, 1000, 1250}), (Labels{"0", "250", "500", "750", "1000", "1250"}));
  EXPECT_EQ(tick_labels({0, 2500, 5000, 7500, 10000}), (Labels{"0", "2.5k", "5k", "7.5k", "10k"}));
  EXPECT_EQ(tick_labels({0, 5e5, 1e6}), (Labels{"0", "0.5M", "1M"}));
  EXPECT_EQ(tick_labels({10, 100, 1000, 1e4, 1e6}), (Labels{"10", "100", "1k", "10k", "1M"}));
  EXPECT_EQ(tick_labels({1e-5, 1e-4, 1e-3, 0.01, 0.1, 1}),
            (Labels{"1e-5", "1e-4", "1e-3", "1e-2", "1e-1", "1"}));
  EXPECT_EQ(tick_labels({0.01, 0.1, 1}), (Labels{"0.01", "0.1", "1"}));
  EXPECT_EQ(tick_labels({0, 0.0005, 0.001, 0.0015}), (Labels{"0", "0.0005", "0.001", "0.0015"}));
  EXPECT_EQ(tick_labels({0, 2.5e-5, 5e-5, 7.5e-5, 1e-4}),
            (Labels{"0", "0.25e-4", "0.5e-4", "0.75e-4", "1e-4"}));
  EXPECT_EQ(tick_labels({-1, -0.5, 0}), (Labels{"−1", "−0.5", "0"}));
  EXPECT_TRUE(tick_labels({}).empty());
}

TEST(FixedNumber, HasNoNegativeZero) {
  EXPECT_EQ(fixed_number(-0.0004, 3), "0.000");
  EXPECT_EQ(fixed_number(-0.25, 2), "−0.25");
  EXPECT_EQ(fixed_number(1, 3), "1.000");
  EXPECT_EQ(fixed_number(kNan, 3), "–");
  EXPECT_EQ(score_number(0.99999), "0.999");
  EXPECT_EQ(score_number(1), "1.000");
  EXPECT_EQ(score_number(kNan), "–");
}

TEST(Chart, LinesBreakAtWhatIsNotFinite) {
  Chart chart = unit_chart();
  chart.line({{0, 0}, {1, 1}, {2, kNan}, {3, 0}, {4, kInfinity}, {5, 1}, {6, 1}}, {});
  const std::string svg = chart.svg("test");
  EXPECT_EQ(test::parse_document(svg).error, "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  const size_t path = svg.find("class=\"s s0\"");
  const std::string d = svg.substr(path, svg.find("/>", path) - path);
  EXPECT_EQ(occurrences(d, "M"), 3u);  // three pieces, the middle one a single point
  EXPECT_EQ(occurrences(d, "h.1"), 1u);
}

TEST(Chart, EmptyAndHostileInput) {
  Chart chart(400, 200, {Scale::kLog, kNan, kNan, "<x>"}, {Scale::kLinear, 1, 1, "\"y\" & z"});
  chart.line({}, {});
  chart.line({{kNan, kNan}}, {-5, -7, 1});
  chart.area({{0, kNan}}, {{0, 1}, {1, 2}}, 3);
  chart.dots({}, 1);
  chart.markers({{1, 0.5}}, {99, 99, 1}, 0, 0, {"<b>"});
  chart.shade_x(-1e9, 1e9, "a & b");
  chart.rule_y(kNan, "nowhere");
  const std::string svg = chart.svg("<&\">");
  EXPECT_EQ(test::parse_document(svg).error, "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(svg.find("nowhere"), std::string::npos);
}

TEST(Decimate, KeepsSpikesGapsAndOrder) {
  std::vector<Point> points;
  for (int i = 0; i < 1'000'000; ++i) points.push_back({double(i), std::sin(i * 1e-5)});
  points[123456].y = 1000;
  points[654321].y = -1000;
  for (int i = 800'000; i < 900'000; ++i) points[i].y = kNan;
  const auto kept = decimate(points, 300);
  EXPECT_LE(kept.size(), 602u);
  bool high = false, low = false, gap = false;
  for (size_t i = 0; i < kept.size(); ++i) {
    high |= kept[i].y == 1000;
    low |= kept[i].y == -1000;
    gap |= std::isnan(kept[i].y);
    EXPECT_LE(kept[i > 0 ? i - 1 : 0].x, kept[i].x);
  }
  EXPECT_TRUE(high && low && gap);
  EXPECT_EQ(decimate({{1, 2}, {3, 4}}, 5).size(), 2u);
  EXPECT_TRUE(decimate({}, 5).empty());
}

TEST(Eigenvalues, GridShowsSignsAndSkipsUnknown) {
  const std::string svg = heat_grid({"head", {"0", "<1>"}, {"0", "1"}, {1, -0.98, kNan, -0.0001}}, "grid");
  const auto document = test::parse_document(svg);
  EXPECT_EQ(document.error, "");
  EXPECT_EQ(occurrences(svg, "class=\"negative\""), 2u);
  EXPECT_EQ(occurrences(svg, "class=\"positive\""), 1u);
  EXPECT_NE(svg.find("−0.98"), std::string::npos);
  EXPECT_EQ(svg.find("−0.00<"), std::string::npos);
  EXPECT_NE(svg.find("&lt;1&gt;"), std::string::npos);
  EXPECT_EQ(occurrences(svg, ">head</text>"), 1u) << "numbers alone would not say of what";
}

// Where the text of that name ends, and where it begins: it must not leave the picture.
TEST(Eigenvalues, LongNamesOfTokensHaveRoom) {
  for (const std::string& svg : {heat_grid({"head", {"(0,1)(2,3)"}, {"0"}, {1}}, "grid"),
                                 eigenvalue_strips({{"(0,1)(2,3)", {1}}}, "strips")}) {
    const size_t text = svg.rfind("<text x=\"", svg.find(">(0,1)(2,3)</text>"));
    ASSERT_NE(text, svg.npos) << svg;
    EXPECT_GE(std::stod(svg.substr(text + 9)), chart_text_width("(0,1)(2,3)")) << svg;
  }
}

// Entries of a legend stand beside each other as far as they fit, and a long one widens the picture.
TEST(Chart, LegendsOfDocumentsDoNotOverlap) {
  const Chart chart(400, 300, {}, {});
  const std::string name(70, 'x');
  const std::string svg = chart.document("d", {{{0, 0, 2}, name}, {{1, 0, 2}, name}, {{2, 0, 2}, "y"}});
  double width = 0, last = -1;
  ASSERT_EQ(std::sscanf(svg.c_str() + svg.find("viewBox"), "viewBox=\"0 0 %lf", &width), 1);
  EXPECT_GE(width, 48 + chart_text_width(name));
  for (size_t at = svg.find("<svg x=", 1); at != svg.npos; at = svg.find("<svg x=", at + 1)) {
    double x = 0, y = 0;
    ASSERT_EQ(std::sscanf(svg.c_str() + at, "<svg x=\"%lf\" y=\"%lf", &x, &y), 2);
    EXPECT_GT(y, last) << "each in a row of its own";
    last = y;
  }
}

// Colours come again, but not with their markers.
TEST(Chart, ManySeriesLookDifferent) {
  std::set<std::string> looks;
  for (int color = 0; color < 2 * kColors; ++color) looks.insert(legend_sample({color, 0, 2}));
  EXPECT_EQ(looks.size(), 2u * kColors);
}

TEST(Eigenvalues, StripsTakeFewManyAndNone) {
  std::vector<double> many;
  for (int i = 0; i < 5000; ++i) many.push_back(-1 + 2.0 * i / 4999);
  many.push_back(kNan);
  const std::string svg = eigenvalue_strips({{"few", {-1, 1, 0, 7}}, {"many", many}, {"none", {}}}, "strips");
  EXPECT_EQ(test::parse_document(svg).error, "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_LT(svg.size(), 30000u);  // a histogram, not 5000 marks
  EXPECT_NE(svg.find("50% &lt; 0"), std::string::npos);
  EXPECT_NE(svg.find("25% &lt; 0"), std::string::npos);
}

// Letters come from files: whatever they are, the picture is XML and every edge has a label that shows.
TEST(Graph, TakesAnyLabel) {
  GraphPicture picture;
  picture.title = "<a> & b";
  picture.nodes = {{"0"}, {"1", true}};
  picture.edges = {{0, 1, "<x>"}, {1, 0, "\x01"}, {0, 0, "\xff"}, {1, 1, "\""}};
  picture.levels_title = "levels";
  picture.levels = {{{"2 tiles", "{0,1}"}}};
  const std::string svg = svg_graph(picture);
  EXPECT_EQ(test::parse_document(svg).error, "");
  EXPECT_EQ(occurrences(svg, "\xEF\xBF\xBD</text>"), 2u);
  EXPECT_EQ(occurrences(svg, "&lt;x&gt;"), 1u);
  EXPECT_EQ(occurrences(svg, "class=\"ring\""), 1u);
  EXPECT_EQ(test::parse_document(svg_graph({})).error, "");
  // Without Graphviz, and with it where it is installed: every edge and label is there.
  picture.nodes.resize(4, {"q"});
  picture.edges = {{0, 1, "ab"}, {1, 0, "ba"}, {1, 2, "c"}, {2, 2, "d"}, {2, 3, "e"}, {3, 0, "long label"}};
  const std::string path = std::getenv("PATH");
  for (const std::string& where : {std::string(), path}) {
    setenv("PATH", where.c_str(), 1);
    const std::string drawn = svg_graph(picture);
    EXPECT_EQ(test::parse_document(drawn).error, "");
    EXPECT_EQ(occurrences(drawn, "class=\"edge\""), picture.edges.size() + 1) << "and the arrow at the start";
    EXPECT_EQ(occurrences(drawn, "class=\"label\""), picture.edges.size());
    EXPECT_EQ(occurrences(drawn, "class=\"node\""), 4u);
  }
}

// The picture for LaTeX is that of the page: its labels are where room was found for them.
TEST(Graph, IsTheSameInLatex) {
  GraphPicture picture;
  for (int q = 0; q < 6; ++q) {
    picture.nodes.push_back({std::to_string(q)});
    for (int other = 0; other < 6; ++other) picture.edges.push_back({q, other, q == 1 ? "b|c" : "north"});
  }
  const std::string path = std::getenv("PATH");
  for (const std::string& where : {std::string(), path}) {
    setenv("PATH", where.c_str(), 1);
    const std::string tikz = tikz_graph(picture), svg = svg_graph(picture);
    EXPECT_NE(tikz.find("{b\\textbar{}c};"), tikz.npos) << tikz;
    EXPECT_EQ(occurrences(tikz, "\\draw[->] (q1) .. controls ("), 6u) << tikz;
    EXPECT_EQ(occurrences(tikz, " .. (q1);"), 6u) << tikz;
    const auto places = [](const std::string& text, const char* begin, const char* format, double scale) {
      std::vector<Point> found;
      for (size_t at = text.find(begin); at != text.npos; at = text.find(begin, at + 1)) {
        Point p;
        EXPECT_EQ(std::sscanf(text.c_str() + at, format, &p.x, &p.y), 2) << text.substr(at, 80);
        found.push_back({std::abs(scale) * p.x, scale * p.y});
      }
      return found;
    };
    const auto labels = places(svg, "class=\"label\"", "class=\"label\" x=\"%lf\" y=\"%lf", 1),
               letters = places(tikz, "\\node[letter]", "\\node[letter] at (%lf,%lf)", -40);
    ASSERT_EQ(labels.size(), picture.edges.size());
    ASSERT_EQ(letters.size(), picture.edges.size());
    for (size_t i = 0; i < letters.size(); ++i) {
      EXPECT_NEAR(letters[i].x - letters[0].x, labels[i].x - labels[0].x, 0.6);
      EXPECT_NEAR(letters[i].y - letters[0].y, labels[i].y - labels[0].y, 0.6);
    }
  }
}

// dot makes no room for the labels of loops.
TEST(Graph, LabelsOfLoopsDoNotLieOnOthers) {
  GraphPicture picture;
  picture.nodes = {{"0"}, {"1"}, {"2"}};
  const std::string label = "a rather long label";
  for (int q = 0; q < 3; ++q)
    for (int other = 0; other < 3; ++other) picture.edges.push_back({q, other, label});
  const std::string svg = svg_graph(picture);
  std::vector<Point> places;
  for (size_t at = svg.find("class=\"label\""); at != svg.npos; at = svg.find("class=\"label\"", at + 1)) {
    Point p;
    ASSERT_EQ(std::sscanf(svg.c_str() + at, "class=\"label\" x=\"%lf\" y=\"%lf", &p.x, &p.y), 2);
    for (const Point& other : places)
      EXPECT_TRUE(std::abs(p.x - other.x) > 7 * label.size() || std::abs(p.y - other.y) > 11) << svg;
    places.push_back(p);
  }
  EXPECT_EQ(places.size(), 9u);
}

// The states that a register of three letters keeps: those of 000 and of 111 are neighbours on the ring.
TEST(Graph, LoopsKeepClearOfOtherNodesAndLoops) {
  GraphPicture picture;
  for (int q = 0; q < 8; ++q) {
    picture.nodes.push_back({std::to_string(q)});
    for (int letter = 0; letter < 2; ++letter)
      picture.edges.push_back({q, (2 * q + letter) % 8, std::to_string(letter)});
  }
  const std::string path = std::getenv("PATH");
  setenv("PATH", "", 1);
  const std::string svg = svg_graph(picture);
  setenv("PATH", path.c_str(), 1);
  std::vector<Point> nodes, loops;
  for (size_t at = svg.find("class=\"node\""); at != svg.npos; at = svg.find("class=\"node\"", at + 1)) {
    Point p;
    ASSERT_EQ(std::sscanf(svg.c_str() + at, "class=\"node\" cx=\"%lf\" cy=\"%lf", &p.x, &p.y), 2);
    nodes.push_back(p);
  }
  for (size_t at = svg.find("d=\"M"); at != svg.npos; at = svg.find("d=\"M", at + 1)) {
    Point a, b, c, d;
    if (std::sscanf(svg.c_str() + at, "d=\"M%lf,%lf C%lf,%lf %lf,%lf %lf,%lf", &a.x, &a.y, &c.x, &c.y, &d.x,
                    &d.y, &b.x, &b.y) == 8 &&
        std::hypot(b.x - a.x, b.y - a.y) < 30)
      loops.push_back({(c.x + d.x) / 2, (c.y + d.y) / 2});
  }
  ASSERT_EQ(nodes.size(), 8u);
  ASSERT_EQ(loops.size(), 2u);
  const auto distance = [](Point a, Point b) { return std::hypot(a.x - b.x, a.y - b.y); };
  EXPECT_GT(distance(loops[0], loops[1]), 60) << svg;
  for (const Point& loop : loops)
    for (const Point& node : nodes) EXPECT_GT(distance(loop, node), 40) << svg;
}

TEST(ComplexPlane, IsWellFormedAndMarksWords) {
  PlanePanel panel{"layer 1 head 1 <&>",
                   {{"a<", {{1, 0}, {-0.5, 0.5}, {kNan, 0}, {40, 0}}}, {"b", {}}},
                   {{{-1, 0}, "ab & more"}}};
  const std::string svg = complex_planes("of \"gates\"", std::vector<PlanePanel>(60, panel));
  EXPECT_EQ(test::parse_document(svg).error, "");
  EXPECT_NE(svg.find("ab &amp; more"), std::string::npos);
  EXPECT_NE(svg.find("12 more heads"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(test::parse_document(complex_planes("", {})).error, "");
}

}  // namespace
}  // namespace signet::report
