// Checks that a page is well-formed XML (our pages are both HTML and XML), and collects its elements.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace signet::test {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;  // as written, entities not resolved
};

struct Document {
  std::vector<Element> elements;
  std::string error;  // empty when well-formed
  size_t count(const std::string& name) const {
    size_t n = 0;
    for (const auto& e : elements) n += e.name == name;
    return n;
  }
};

inline Document parse_document(const std::string& text) {
  Document document;
  std::vector<std::string> open;
  size_t at = text.rfind("<!DOCTYPE html>", 0) == 0 ? 15 : 0;
  auto fail = [&](const std::string& what) {
    document.error = what + " at ..." + text.substr(at, 60);
    return document;
  };
  auto bad_entity = [](const std::string& piece) {
    for (size_t amp = piece.find('&'); amp != piece.npos; amp = piece.find('&', amp + 1)) {
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        known |= piece.compare(amp, std::string(entity).size(), entity) == 0;
      if (!known) return true;
    }
    return false;
  };
  while (at < text.size()) {
    const size_t tag = text.find('<', at);
    if (bad_entity(text.substr(at, tag - at))) return fail("a bare ampersand");
    if (tag == text.npos) break;
    at = tag;
    size_t end = at + 1;
    for (char quote = 0; end < text.size() && (quote || text[end] != '>'); ++end) {
      if (quote ? text[end] == quote : text[end] == '"') quote = quote ? 0 : text[end];
      if (text[end] == '<') return fail("'<' inside a tag");
    }
    if (end >= text.size()) return fail("a tag without end");
    std::string body = text.substr(at + 1, end - at - 1);
    if (body[0] == '/') {
      if (open.empty() || open.back() != body.substr(1)) return fail("an end tag out of place");
      open.pop_back();
    } else {
      const bool closed = body.back() == '/';
      if (closed) body.pop_back();
      Element element;
      size_t i = body.find_first_of(" \n");
      element.name = body.substr(0, i);
      while (i != body.npos && (i = body.find_first_not_of(" \n", i)) != body.npos) {
        const size_t equals = body.find("=\"", i);
        const size_t quote = equals == body.npos ? body.npos : body.find('"', equals + 2);
        if (quote == body.npos) return fail("an attribute without quotes");
        const std::string name = body.substr(i, equals - i),
                          value = body.substr(equals + 2, quote - equals - 2);
        if (bad_entity(value)) return fail("a bare ampersand in an attribute");
        if (!element.attributes.emplace(name, value).second) return fail("an attribute twice");
        i = quote + 1;
      }
      if (!closed) open.push_back(element.name);
      document.elements.push_back(std::move(element));
    }
    at = end + 1;
  }
  if (!open.empty()) document.error = "<" + open.back() + "> is never closed";
  return document;
}

}  // namespace signet::test
