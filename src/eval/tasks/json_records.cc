#include "eval/tasks/json_records.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace varve::eval {
namespace {

using nlohmann::json;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/// The end of the object that begins at `begin`: behind its closing bracket; npos when there is none.
size_t object_end(std::string_view text, size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) return at + 1;
    }
  }
  return std::string_view::npos;
}

std::string place_of(const std::string& path, int64_t line) { return path + ":" + std::to_string(line); }

/// The library's message without its own prefix.
std::string reason(const json::exception& error) {
  const std::string text = error.what();
  const size_t begin = text.find("] ");
  return begin == std::string::npos ? text : text.substr(begin + 2);
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const std::string why = path + ": " + std::strerror(errno);
    return errno == ENOENT ? not_found(why) : io_error(why);
  }
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return io_error(path + ": reading failed");
  std::string out = std::move(text).str();
  if (std::all_of(out.begin(), out.end(), is_space)) return corrupt(path + " holds no question");
  return out;
}

Result<std::vector<RawRecord>> split_array(const std::string& path, std::string_view document) {
  std::vector<RawRecord> records;
  size_t at = 0, counted = 0;
  int64_t line = 1;
  const auto skip_space = [&] {
    while (at < document.size() && is_space(document[at])) ++at;
  };
  const auto line_here = [&] {
    line +=
        std::count(document.begin() + static_cast<int64_t>(counted), document.begin() + static_cast<int64_t>(at), '\n');
    counted = at;
    return line;
  };
  const auto wrong = [&](const std::string& what) { return corrupt(place_of(path, line_here()) + ": " + what); };

  skip_space();
  if (at == document.size() || document[at] != '[') return wrong("expected an array of questions, '['");
  ++at;
  for (;;) {
    skip_space();
    if (at < document.size() && document[at] == ']' && records.empty()) return wrong("the array holds no question");
    if (at == document.size() || document[at] != '{')
      return wrong("expected a question, '{', as number " + std::to_string(records.size() + 1) + " of the array");
    const int64_t begins = line_here();
    const size_t end = object_end(document, at);
    if (end == std::string_view::npos)
      return wrong("question " + std::to_string(records.size() + 1) +
                   " of the array does not end: the file is cut off");
    records.push_back({document.substr(at, end - at), begins});
    at = end;
    skip_space();
    if (at < document.size() && document[at] == ']') return records;
    if (at == document.size() || document[at] != ',') return wrong("expected ',' or ']' behind a question");
    ++at;
  }
}

std::vector<RawRecord> split_lines(std::string_view document) {
  std::vector<RawRecord> records;
  int64_t line = 1;
  for (size_t begin = 0; begin < document.size(); ++line) {
    const size_t end = std::min(document.find('\n', begin), document.size());
    const std::string_view text = document.substr(begin, end - begin);
    if (!std::all_of(text.begin(), text.end(), is_space)) records.push_back({text, line});
    begin = end + 1;
  }
  return records;
}

Result<Record> Record::parse(const std::string& path, const RawRecord& raw) {
  const std::string place = place_of(path, raw.line);
  try {
    json object = json::parse(raw.text);
    if (!object.is_object()) return corrupt(place + ": expected an object, found " + object.type_name());
    return Record(place, std::move(object));
  } catch (const json::exception& error) {
    return corrupt(place + ": malformed JSON, counted from there: " + reason(error));
  }
}

Status Record::wrong(const char* field, const std::string& what) const {
  return corrupt(place_ + ": field '" + field + "' " + what);
}

Result<std::string> Record::text(const char* field) const {
  const auto it = object_.find(field);
  if (it == object_.end()) return wrong(field, "is missing");
  if (!it->is_string()) return wrong(field, std::string("must be a string and is ") + it->type_name());
  return it->get<std::string>();
}

Result<std::vector<std::string>> Record::texts(const char* field, size_t least) const {
  const auto it = object_.find(field);
  if (it == object_.end()) return wrong(field, "is missing");
  std::vector<std::string> out;
  if (it->is_string()) {
    out.push_back(it->get<std::string>());
  } else if (it->is_array()) {
    for (const json& value : *it) {
      if (!value.is_string() && !value.is_number())
        return wrong(field, std::string("must hold strings and holds ") + value.type_name());
      out.push_back(value.is_string() ? value.get<std::string>() : value.dump());
    }
  } else {
    return wrong(field, std::string("must be an array of strings and is ") + it->type_name());
  }
  if (out.size() < least)
    return wrong(field, "holds " + std::to_string(out.size()) + " of at least " + std::to_string(least) + " values");
  return out;
}

}  // namespace varve::eval
