#include "signet/report/svg_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "signet/report/graphviz.h"
#include "signet/report/html.h"
#include "signet/report/table.h"

namespace signet::report {
namespace {

constexpr double kRadius = 20, kMargin = 70, kFont = 13;

struct Position {
  double x, y;
};
Position operator+(Position a, Position b) { return {a.x + b.x, a.y + b.y}; }
Position operator-(Position a, Position b) { return {a.x - b.x, a.y - b.y}; }
Position operator*(double k, Position a) { return {k * a.x, k * a.y}; }
double length(Position a) { return std::hypot(a.x, a.y); }

double text_width(const std::string& text) { return static_cast<double>(display_width(text)) * kFont * 0.62; }

std::vector<std::vector<int32_t>> neighbours(const GraphPicture& picture, bool reversed) {
  std::vector<std::vector<int32_t>> result(picture.nodes.size());
  for (const auto& edge : picture.edges)
    result[static_cast<size_t>(reversed ? edge.to : edge.from)].push_back(reversed ? edge.from : edge.to);
  return result;
}

// Distance from the start along edges; unreachable nodes get -1.
std::vector<int32_t> distances(const std::vector<std::vector<int32_t>>& graph, int32_t start) {
  std::vector<int32_t> distance(graph.size(), -1), queue = {start};
  distance[static_cast<size_t>(start)] = 0;
  for (size_t i = 0; i < queue.size(); ++i)
    for (int32_t next : graph[static_cast<size_t>(queue[i])])
      if (distance[static_cast<size_t>(next)] < 0) {
        distance[static_cast<size_t>(next)] = distance[static_cast<size_t>(queue[i])] + 1;
        queue.push_back(next);
      }
  return distance;
}

std::vector<Position> ring(const GraphPicture& picture) {
  const size_t n = picture.nodes.size();
  // Walk along edges as far as fresh nodes lead, so that long cycles follow the ring.
  const auto graph = neighbours(picture, false);
  std::vector<int32_t> order;
  std::vector<bool> placed(n);
  for (int32_t root = picture.start; order.size() < n;) {
    while (root >= 0) {
      placed[static_cast<size_t>(root)] = true;
      order.push_back(root);
      const auto& next = graph[static_cast<size_t>(root)];
      const auto it =
          std::find_if(next.begin(), next.end(), [&](int32_t q) { return !placed[static_cast<size_t>(q)]; });
      root = it == next.end() ? -1 : *it;
    }
    root = static_cast<int32_t>(std::find(placed.begin(), placed.end(), false) - placed.begin());
  }
  double spacing = 4.1 * kRadius;
  for (const auto& edge : picture.edges) spacing = std::max(spacing, text_width(edge.label) + 3 * kRadius);
  const double radius = std::max(75.0, static_cast<double>(n) * spacing / (2 * M_PI));
  std::vector<Position> position(n);
  for (size_t i = 0; i < n; ++i) {
    const double angle = M_PI + 2 * M_PI * static_cast<double>(i) / static_cast<double>(n);
    position[static_cast<size_t>(order[i])] = {radius * std::cos(angle), radius * std::sin(angle)};
  }
  return position;
}

std::vector<Position> columns(const GraphPicture& picture, const std::vector<int32_t>& distance) {
  const auto from = neighbours(picture, true);
  const int32_t last = *std::max_element(distance.begin(), distance.end());
  std::vector<std::vector<int32_t>> column(static_cast<size_t>(last) + 2);
  for (size_t q = 0; q < distance.size(); ++q)
    column[static_cast<size_t>(distance[q] < 0 ? last + 1 : distance[q])].push_back(static_cast<int32_t>(q));
  std::vector<Position> position(distance.size(), Position{0, 0});
  for (size_t c = 0; c < column.size(); ++c) {
    // Near the mean height of their predecessors in the columns before.
    const auto wish = [&](int32_t q) {
      double sum = 0;
      int count = 0;
      for (int32_t p : from[static_cast<size_t>(q)])
        if (distance[static_cast<size_t>(p)] >= 0 &&
            distance[static_cast<size_t>(p)] < static_cast<int32_t>(c))
          sum += position[static_cast<size_t>(p)].y, ++count;
      return count ? sum / count : 0.0;
    };
    std::stable_sort(column[c].begin(), column[c].end(),
                     [&](int32_t a, int32_t b) { return wish(a) < wish(b); });
    for (size_t i = 0; i < column[c].size(); ++i)
      position[static_cast<size_t>(column[c][i])] = {
          static_cast<double>(c) * 130,
          (static_cast<double>(i) - static_cast<double>(column[c].size() - 1) / 2) * 105 +
              (c % 2 && column.size() > 5 ? 12 : 0)};
  }
  return position;
}

std::vector<Position> layout(const GraphPicture& picture) {
  const auto distance = distances(neighbours(picture, false), picture.start);
  const auto back = distances(neighbours(picture, true), picture.start);
  const bool strong =
      std::count(distance.begin(), distance.end(), -1) == 0 && std::count(back.begin(), back.end(), -1) == 0;
  return strong && picture.nodes.size() > 2 ? ring(picture) : columns(picture, distance);
}

struct Bend {
  Position a, control, b;
  Position at(double t) const { return (1 - t) * (1 - t) * a + (2 * t * (1 - t)) * control + (t * t) * b; }
};

// From rim to rim, the control point `bend` to the left of the middle.
Bend bent(Position from, Position to, double bend) {
  const Position along = to - from;
  const double distance = std::max(1.0, length(along));
  const Position normal = {along.y / distance, -along.x / distance};
  const Position control = 0.5 * (from + to) + (2 * bend) * normal;
  const auto rim = [&](Position centre, double extra) {
    const Position direction = control - centre;
    return centre + ((kRadius + extra) / std::max(1.0, length(direction))) * direction;
  };
  return {rim(from, 0), control, rim(to, 7)};
}

struct Label {
  Position centre;
  double half_width;
};

// Where everything of a picture lies, whatever it is written for.
class Drawing {
 public:
  struct Way {
    std::vector<Position> spline;  // cubic: the start, then three points for each piece
    Position label;                // its middle
  };

  // At places of Graphviz, where it is installed; of two states ours are right. Else at positions of ours
  // with edges that look for a way.
  explicit Drawing(const GraphPicture& picture) : picture_(picture) {
    std::vector<double> widths;
    for (const auto& edge : picture.edges) widths.push_back(text_width(edge.label));
    std::optional<GraphPlaces> places;
    if (picture.nodes.size() > 2) places = graphviz_places(picture, kRadius + 5, kFont, widths);
    if (places)
      for (const auto& [x, y] : places->nodes) position_.push_back({x, y});
    else
      position_ = layout(picture);
    for (const auto& edge : picture.edges) pairs_.insert({edge.from, edge.to});
    for (size_t e = 0; e < picture.edges.size(); ++e) {
      const auto& edge = picture.edges[e];
      if (places)
        placed(edge, places->edges[e]);
      else if (edge.from == edge.to)
        loop(edge);
      else
        arrow(edge);
    }
    grow(position_[static_cast<size_t>(picture.start)] - Position{kRadius + 40, 0});
    for (const auto [x, y] : position_) {
      grow({x - kRadius, y - kRadius});
      grow({x + kRadius, y + kRadius});
    }
  }

  Position low() const { return low_; }
  Position high() const { return high_; }
  const std::vector<Position>& positions() const { return position_; }
  const std::vector<Way>& ways() const { return ways_; }  // of the edges, in their order

 private:
  void grow(Position p) {
    low_ = {std::min(low_.x, p.x), std::min(low_.y, p.y)};
    high_ = {std::max(high_.x, p.x), std::max(high_.y, p.y)};
  }
  double crowding(const Label& label) const {
    double cost = 0;
    for (const auto& other : labels_)
      if (std::abs(label.centre.x - other.centre.x) < label.half_width + other.half_width + 3 &&
          std::abs(label.centre.y - other.centre.y) < kFont + 3)
        cost += 120;
    for (const auto& node : position_)
      if (std::abs(label.centre.x - node.x) < label.half_width + kRadius &&
          std::abs(label.centre.y - node.y) < kRadius + kFont / 2 + 2)
        cost += 200;
    for (const auto& point : drawn_)  // a label on another edge is read as that edge's
      if (std::abs(label.centre.x - point.x) < label.half_width + 2 &&
          std::abs(label.centre.y - point.y) < kFont / 2 + 2)
        cost += 30;
    return cost;
  }
  double crossed_labels(const Bend& curve) const {
    double cost = 0;
    for (const auto& label : labels_)
      for (int i = 1; i < 20; ++i) {
        const Position at = curve.at(i / 20.0);
        if (std::abs(label.centre.x - at.x) < label.half_width + 2 &&
            std::abs(label.centre.y - at.y) < kFont / 2 + 2)
          cost += 30;
      }
    return cost;
  }
  void add(const GraphPicture::Edge& edge, std::vector<Position> spline, Position at) {
    const Label label{at, text_width(edge.label) / 2};
    labels_.push_back(label);
    grow({at.x - label.half_width, at.y - kFont});
    grow({at.x + label.half_width, at.y + kFont});
    ways_.push_back({std::move(spline), at});
  }

  void placed(const GraphPicture::Edge& edge, const GraphPlaces::Edge& way) {
    std::vector<Position> spline;
    for (const auto& [x, y] : way.spline) {
      spline.push_back({x, y});
      grow({x, y});
    }
    add(edge, std::move(spline), {way.label.first, way.label.second});
  }

  // The bend that keeps clear of other nodes and labels at the least detour.
  void arrow(const GraphPicture::Edge& edge) {
    const Position from = position_[static_cast<size_t>(edge.from)],
                   to = position_[static_cast<size_t>(edge.to)];
    const double first = pairs_.count({edge.to, edge.from}) ? 16 : 0;
    Bend best{};
    Position best_label{};
    double best_cost = 1e18;
    for (double bend : {0.0, 16.0, -16.0, 28.0, -28.0, 44.0, -44.0, 64.0, -64.0, 90.0, -90.0, 125.0, -125.0,
                        170.0, -170.0}) {
      if (first > 0 && bend < first) continue;  // two-way pairs keep to their own side
      const Bend curve = bent(from, to, bend);
      double cost = std::abs(bend) * 1.2 + crossed_labels(curve);
      for (size_t q = 0; q < position_.size(); ++q) {
        if (static_cast<int32_t>(q) == edge.from || static_cast<int32_t>(q) == edge.to) continue;
        double nearest = 1e18;
        for (int i = 1; i < 20; ++i) nearest = std::min(nearest, length(curve.at(i / 20.0) - position_[q]));
        if (nearest < kRadius + 8) cost += 400 + 20 * (kRadius + 8 - nearest);
      }
      const Position along = to - from;
      const double side = bend < 0 ? -1 : 1;
      const Position normal = (side / std::max(1.0, length(along))) * Position{along.y, -along.x};
      for (double t : {0.5, 0.4, 0.6, 0.3, 0.7}) {
        const double reach = 8 + std::abs(normal.x) * text_width(edge.label) / 2;
        const Position centre = curve.at(t) + reach * normal;
        const double total = cost + crowding({centre, text_width(edge.label) / 2}) + 20 * std::abs(t - 0.5);
        if (total < best_cost) best_cost = total, best = curve, best_label = centre;
      }
    }
    for (int i = 0; i <= 10; ++i) grow(best.at(i / 10.0));
    for (int i = 1; i < 20; ++i) drawn_.push_back(best.at(i / 20.0));
    // The same parabola as a cubic.
    const auto third = [&](Position end) { return end + (2.0 / 3) * (best.control - end); };
    add(edge, {best.a, third(best.a), third(best.b), best.b}, best_label);
  }

  // Upwards where nothing is in the way: other nodes, what was drawn before, arrows of its own node.
  void loop(const GraphPicture::Edge& edge) {
    const Position p = position_[static_cast<size_t>(edge.from)];
    double best_cost = 1e18, angle = -M_PI / 2;
    Position best_label{};
    for (double candidate : {-M_PI / 2, M_PI / 2, -M_PI / 4, -3 * M_PI / 4, M_PI / 4, 3 * M_PI / 4}) {
      const Position out = {std::cos(candidate), std::sin(candidate)};
      const Position label = p + (kRadius + 44) * out + Position{out.x * text_width(edge.label) / 2, 0};
      double cost = crowding({label, text_width(edge.label) / 2}) + 10 * std::abs(candidate + M_PI / 2);
      for (const auto& other : picture_.edges) {  // arrows at this node should leave elsewhere
        if (other.from == other.to || (other.from != edge.from && other.to != edge.from)) continue;
        const Position toward =
            position_[static_cast<size_t>(other.from == edge.from ? other.to : other.from)] - p;
        const double cosine = (toward.x * out.x + toward.y * out.y) / std::max(1.0, length(toward));
        if (cosine > 0.6) cost += 100 * cosine;
      }
      const Position middle = p + (kRadius + 22) * out;
      for (size_t q = 0; q < position_.size(); ++q)
        if (static_cast<int32_t>(q) != edge.from && length(position_[q] - middle) < kRadius + 32) cost += 150;
      for (const auto& point : drawn_)
        if (length(point - middle) < 16) cost += 15;
      if (edge.from == picture_.start && out.x < -0.5) cost += 60;
      if (cost < best_cost) best_cost = cost, angle = candidate, best_label = label;
    }
    const auto on_rim = [&](double turn, double reach) {
      return p + reach * Position{std::cos(angle + turn), std::sin(angle + turn)};
    };
    const Position a = on_rim(-0.4, kRadius), b = on_rim(0.4, kRadius + 7), c = on_rim(-0.55, kRadius + 42),
                   d = on_rim(0.55, kRadius + 42);
    grow(c);
    grow(d);
    for (int i = 1; i < 10; ++i) {
      const double t = i / 10.0, u = 1 - t;
      drawn_.push_back((u * u * u) * a + (3 * u * u * t) * c + (3 * u * t * t) * d + (t * t * t) * b);
    }
    add(edge, {a, c, d, b}, best_label);
  }

  const GraphPicture& picture_;
  std::vector<Position> position_;
  std::set<std::pair<int32_t, int32_t>> pairs_;
  std::vector<Label> labels_;
  std::vector<Position> drawn_;  // points of the edges so far
  std::vector<Way> ways_;
  Position low_{1e18, 1e18}, high_{-1e18, -1e18};
};

// Edges below labels below nodes.
std::string svg_drawing(const GraphPicture& picture, const Drawing& drawing) {
  const auto path = [](const std::string& d) { return fmt::format("<path class=\"edge\" d=\"{}\"/>\n", d); };
  const auto text = [](const std::string& content, Position at, const char* style) {
    return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, at.x,
                       at.y + kFont * 0.35, escape(content));
  };
  std::string edges, labels, nodes;
  for (size_t e = 0; e < picture.edges.size(); ++e) {
    const auto& way = drawing.ways()[e];
    std::string d;
    for (const auto [x, y] : way.spline)
      d += fmt::format("{}{:.1f},{:.1f}", d.empty() ? "M" : d.find('C') == d.npos ? " C" : " ", x, y);
    edges += path(d);
    labels += text(picture.edges[e].label, way.label, "label");
  }
  const Position start = drawing.positions()[static_cast<size_t>(picture.start)];
  edges += path(fmt::format("M{:.1f},{:.1f} L{:.1f},{:.1f}", start.x - kRadius - 38, start.y,
                            start.x - kRadius - 7, start.y));
  for (size_t q = 0; q < picture.nodes.size(); ++q) {
    const Position at = drawing.positions()[q];
    const auto circle = [&](const char* style, double radius) {
      return fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>\n", style, at.x, at.y,
                         radius);
    };
    nodes += circle("node", kRadius);
    if (picture.nodes[q].doubled) nodes += circle("ring", kRadius - 4);
    nodes += text(picture.nodes[q].label, at, "name");
  }
  return edges + labels + nodes;
}

// In double quotes.
std::string dot_text(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

std::string dot_graph(const GraphPicture& picture) {
  std::string text = fmt::format(
      "// signet {}\ndigraph automaton {{\n  rankdir=LR;\n  label={};\n  node [shape=circle];\n"
      "  start [shape=point, style=invis];\n",
      SIGNET_VERSION, dot_text(picture.title));
  for (size_t q = 0; q < picture.nodes.size(); ++q)
    text += fmt::format("  q{} [label={}{}];\n", q, dot_text(picture.nodes[q].label),
                        picture.nodes[q].doubled ? ", shape=doublecircle" : "");
  if (!picture.nodes.empty()) text += fmt::format("  start -> q{};\n", picture.start);
  for (const auto& edge : picture.edges)
    text += fmt::format("  q{} -> q{} [label={}];\n", edge.from, edge.to, dot_text(edge.label));
  return text + "}\n";
}

std::string tikz_graph(const GraphPicture& picture) {
  std::string text = fmt::format(
      "% signet {}; needs \\usetikzlibrary{{automata,arrows.meta}}\n"
      "\\begin{{tikzpicture}}[>=Stealth,every state/.style={{minimum size=1cm}},\n"
      "  letter/.style={{fill=white,inner sep=1pt}}]\n",
      SIGNET_VERSION);
  if (picture.nodes.empty()) return text + "\\end{tikzpicture}\n";
  const Drawing drawing(picture);
  const auto centimetres = [](Position p) {  // a fortieth of a pixel of ours, upwards; no -0
    const auto rounded = [](double x) { return std::round(x / 40 * 100) / 100 + 0.0; };
    return fmt::format("({:.2f},{:.2f})", rounded(p.x), rounded(-p.y));
  };
  for (size_t q = 0; q < picture.nodes.size(); ++q)
    text += fmt::format("  \\node[state{}{}] (q{}) at {} {{{}}};\n",
                        static_cast<int32_t>(q) == picture.start ? ",initial,initial text=" : "",
                        picture.nodes[q].doubled ? ",accepting" : "", q, centimetres(drawing.positions()[q]),
                        latex_text(picture.nodes[q].label));
  // An edge begins and ends at its nodes, so that their circles cut it.
  for (size_t e = 0; e < picture.edges.size(); ++e) {
    const auto& [from, to, label] = picture.edges[e];
    const auto& spline = drawing.ways()[e].spline;
    text += fmt::format("  \\draw[->] (q{})", from);
    for (size_t i = 1; i + 2 < spline.size(); i += 3)
      text += fmt::format(" .. controls {} and {} .. {}", centimetres(spline[i]), centimetres(spline[i + 1]),
                          i + 3 < spline.size() ? centimetres(spline[i + 2]) : fmt::format("(q{})", to));
    text += ";\n";
  }
  for (size_t e = 0; e < picture.edges.size(); ++e)
    text += fmt::format("  \\node[letter] at {} {{{}}};\n", centimetres(drawing.ways()[e].label),
                        latex_text(picture.edges[e].label));
  return text + "\\end{tikzpicture}\n";
}

std::string svg_graph(const GraphPicture& picture) {
  std::string body;
  double width = 360, height = 0;
  if (!picture.nodes.empty()) {
    const Drawing drawing(picture);
    const Position low = drawing.low(), high = drawing.high();
    width = std::max(width, high.x - low.x + 2 * kMargin / 2);
    height = high.y - low.y + kMargin;
    body = fmt::format("<g transform=\"translate({:.1f},{:.1f})\">\n{}</g>\n", kMargin / 2 - low.x,
                       40 + kMargin / 2 - low.y, svg_drawing(picture, drawing));
    height += 40;
  }
  if (!picture.levels.empty()) {
    double y = height + 24;
    width = std::max(width, text_width(picture.levels_title) * 1.2 + 48);
    body += fmt::format("<text class=\"heading\" x=\"24\" y=\"{:.1f}\">{}</text>\n", y,
                        escape(picture.levels_title));
    y += 16;
    for (size_t level = 0; level < picture.levels.size(); ++level) {
      double x = 56;
      body += fmt::format("<text class=\"name\" x=\"34\" y=\"{:.1f}\">{}</text>\n", y + 26, level + 1);
      for (const auto& box : picture.levels[level]) {
        const double box_width = std::max(text_width(box.title), text_width(box.detail)) + 20;
        body += fmt::format(
            "<rect class=\"box\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"42\" rx=\"5\"/>\n", x, y,
            box_width);
        body += fmt::format(
            "<text class=\"name\" x=\"{0:.1f}\" y=\"{1:.1f}\">{2}</text>\n<text class=\"detail\" "
            "x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>\n",
            x + box_width / 2, y + 18, escape(box.title), y + 34, escape(box.detail));
        x += box_width + 12;
      }
      width = std::max(width, x + 24);
      y += 54;
    }
    height = y;
  }
  width = std::max(width, text_width(picture.title) * 1.2 + 48);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 "
             "{0:.0f} {1:.0f}\" style=\"max-width:100%;height:auto\">\n"
             "<metadata>signet {4}</metadata>\n"
             "<title>{2}</title>\n"
             "<style>text{{font:{3}px "
             "system-ui,sans-serif;fill:#1d2733}}.name,.label,.detail{{text-anchor:middle}}"
             ".label{{paint-order:stroke;stroke:#fff;stroke-width:4px;fill:#8a2f0b}}.detail{{fill:#5a6675;"
             "font-size:11px}}"
             ".heading{{font-weight:600;font-size:15px}}.node{{fill:#eaf2fb;stroke:#22527b;stroke-width:1.6}}"
             ".ring{{fill:none;stroke:#22527b;stroke-width:1.6}}.edge{{fill:none;stroke:#51606f;stroke-width:"
             "1.4;marker-end:url(#tip)}}"
             ".box{{fill:#f5f7f9;stroke:#9fb0c0}}.back{{fill:#fff}}.tip{{fill:#51606f}}"
             "@media(prefers-color-scheme:dark){{text{{fill:#e9e9e6}}.back{{fill:#14161a}}.label{{stroke:#"
             "14161a;"
             "fill:#ffb38a}}.detail{{fill:#a3a9b0}}.node{{fill:#1d2b3a;stroke:#8fc1f0}}.ring{{stroke:#8fc1f0}"
             "}"
             ".edge{{stroke:#a9b4bf}}.tip{{fill:#a9b4bf}}.box{{fill:#1c1f24;stroke:#4a5562}}}}</style>\n"
             "<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"3\" refY=\"5\" markerWidth=\"7\" "
             "markerHeight=\"7\" "
             "orient=\"auto-start-reverse\"><path d=\"M0,0.8 L9,5 L0,9.2 z\" "
             "class=\"tip\"/></marker></defs>\n"
             "<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
             "<text class=\"heading\" x=\"24\" y=\"28\">{2}</text>\n",
             width, height, escape(picture.title), kFont, SIGNET_VERSION) +
         body + "</svg>\n";
}

}  // namespace signet::report
