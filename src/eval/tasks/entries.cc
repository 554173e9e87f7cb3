#include "eval/tasks/entries.h"

#include <algorithm>
#include <optional>
#include <set>

namespace varve::eval {
namespace {

constexpr size_t kLongestValue = 200;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_upper(c) || is_digit(c) || c == '_' || (c >= 'a' && c <= 'z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'A' && c <= 'F'); }

template <typename Is>
size_t skip(std::string_view text, size_t at, const Is& is) {
  while (at < text.size() && is(text[at])) ++at;
  return at;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

/// What the line says of `"KEY": "VALUE"`.
std::optional<std::string_view> json_value(std::string_view line, std::string_view key) {
  const size_t at = skip(line, 0, is_space);
  if (!starts_with(line.substr(at), key)) return {};
  const size_t begin = at + key.size(), end = line.find('"', begin);
  if (end == std::string_view::npos) return {};
  return line.substr(begin, end - begin);
}

/// `#define NAME VALUE`, without parameters and without a comment in the value.
std::optional<Entry> definition(std::string_view line) {
  constexpr std::string_view kDefine = "#define ";
  if (!starts_with(line, kDefine)) return {};
  const size_t begin = skip(line, kDefine.size(), is_space), end = skip(line, begin, is_name);
  if (end == begin || end == line.size() || !is_space(line[end])) return {};
  std::string_view value = line.substr(end);
  value = value.substr(0, value.find("/*"));
  if (!value.empty() && value.back() == '\\') return {};
  return Entry{std::string(line.substr(begin, end - begin)), single_spaced(value), begin};
}

/// `0041;LATIN CAPITAL LETTER A;...`
std::optional<Entry> character(std::string_view line) {
  const size_t code = skip(line, 0, is_hex);
  if (code < 4 || code > 6 || code == line.size() || line[code] != ';') return {};
  const size_t end = line.find(';', code + 1);
  if (end == std::string_view::npos || line[code + 1] == '<') return {};
  return Entry{std::string(line.substr(0, code)), single_spaced(line.substr(code + 1, end - code - 1)), 0};
}

/// `Ge1:1 In the beginning ...`
std::optional<Entry> verse(std::string_view line) {
  const size_t book = skip(line, 0, [](char c) { return is_name(c) && !is_digit(c); });
  size_t at = book > 0 ? book : skip(line, skip(line, 0, is_digit), is_name);
  if (at == 0) return {};
  at = skip(line, at, is_digit);
  if (at == line.size() || line[at] != ':' || !is_digit(line[at - 1])) return {};
  const size_t end = skip(line, at + 1, is_digit);
  if (end == at + 1 || end == line.size() || line[end] != ' ') return {};
  return Entry{std::string(line.substr(0, end)), single_spaced(line.substr(end)), 0};
}

}  // namespace

std::string single_spaced(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_space(text[at])) {
      out += text[at];
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::vector<Entry> find_entries(std::string_view text) {
  std::vector<Entry> entries;
  std::set<std::string> names;
  const auto add = [&](Entry entry, size_t line_begin) {
    entry.offset += line_begin;
    if (entry.value.empty() || entry.value.size() > kLongestValue) return;
    if (names.insert(entry.name).second) entries.push_back(std::move(entry));
  };
  std::string_view code;  // of the JSON object that is being read
  size_t code_at = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (const auto json_code = json_value(line, "\"code\": \"")) {
      code = *json_code;
      code_at = static_cast<size_t>(code.data() - text.data());
    } else if (const auto name = json_value(line, "\"name\": \""); name && !code.empty()) {
      add({std::string(code), single_spaced(*name), code_at}, 0);
      code = {};
    } else if (auto entry = definition(line)) {
      add(*entry, begin);
    } else if (auto letter = character(line)) {
      add(*letter, begin);
    } else if (auto said = verse(line)) {
      add(*said, begin);
    }
    begin = end + 1;
  }
  return entries;
}

}  // namespace varve::eval
