#pragma once
// Records of a JSON array or of JSON lines, each with the line where it begins, and fields whose absence or wrong type
// is an error that names file, line and field.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve::eval {

Result<std::string> read_file(const std::string& path);

/// An object that is not parsed yet, and the line where it begins.
struct RawRecord {
  std::string_view text;
  int64_t line = 1;
};

/// The objects of the top-level array of `document`, by their brackets alone: a large file is not parsed as a whole.
/// kCorrupt when it is not an array of objects.
Result<std::vector<RawRecord>> split_array(const std::string& path, std::string_view document);

/// The lines that are not blank.
std::vector<RawRecord> split_lines(std::string_view document);

/// One parsed object.
class Record {
 public:
  static Result<Record> parse(const std::string& path, const RawRecord& raw);

  bool has(const char* field) const { return object_.contains(field) && !object_.at(field).is_null(); }
  Result<std::string> text(const char* field) const;
  /// A field that is a string or an array of strings or numbers; `least` is how many there must be.
  Result<std::vector<std::string>> texts(const char* field, size_t least) const;
  /// kCorrupt: "PATH:LINE: field 'FIELD' WHAT".
  Status wrong(const char* field, const std::string& what) const;
  /// "PATH:LINE".
  const std::string& place() const { return place_; }

 private:
  Record(std::string place, nlohmann::json object) : place_(std::move(place)), object_(std::move(object)) {}
  std::string place_;
  nlohmann::json object_;
};

}  // namespace varve::eval
