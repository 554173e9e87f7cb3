#pragma once
// The directory of an evaluation: what was asked for, and one line for each (item, arm) that is done. A run that was
// stopped goes on where it was.
//
//   eval.json      the run's identity; another run's directory is refused
//   items.jsonl    one record a line, in the order in which they were done; a line cut in the middle is dropped
//   summary.json, report.html   written when everything is done

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "eval/run/record.h"

namespace varve::eval {

class Store {
 public:
  Store(Store&& other) noexcept;
  Store& operator=(Store&&) = delete;
  ~Store();

  /// Opens or makes `directory`. identity: what must be the same for records to be comparable. kInvalidArgument when
  /// the directory is another run's (says which key differs) or holds files of something else (names one); kIoError
  /// when it cannot be made or written or when another process writes to it; kCorrupt names the line.
  static Result<Store> open(const std::string& directory, const nlohmann::ordered_json& identity);

  const std::vector<ItemRecord>& records() const { return records_; }
  /// Whether (id, arm) is done. kInvalidArgument when it was done with another profile or prompt.
  Result<bool> has(const std::string& id, const ArmSpec& arm, const std::string& prompt_sha256) const;
  /// Whether there is a line of (id, arm), whatever it was made with.
  bool has_any(const std::string& id, const std::string& arm) const { return done_.contains({id, arm}); }
  /// Adds a line and hands it to the system.
  Status add(ItemRecord record);

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  /// Replaces a file of the directory at once: a reader sees the old text or the new one.
  Status write(const std::string& name, const std::string& text) const;

 private:
  explicit Store(std::string directory) : directory_(std::move(directory)) {}
  Status read_lines();
  void index(const ItemRecord& record, size_t at) { done_[{record.id, record.arm}] = at; }

  std::string directory_;
  int file_ = -1;  ///< items.jsonl, locked
  std::vector<ItemRecord> records_;
  std::map<std::pair<std::string, std::string>, size_t> done_;  ///< (id, arm) -> index in records_
};

}  // namespace varve::eval
