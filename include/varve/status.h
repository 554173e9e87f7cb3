#pragma once
// Errors are values. Nothing in libvarve prints, aborts or throws across its public boundary.

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace varve {

enum class StatusCode {
  kOk,
  kInvalidArgument,    ///< the caller asked for something that can never work
  kNotFound,           ///< a file or a named thing does not exist
  kUnsupported,        ///< valid input that this build or machine cannot serve
  kCorrupt,            ///< stored bytes contradict themselves or their checksum
  kResourceExhausted,  ///< a stated budget is too small; the message says the numbers
  kContextOverflow,    ///< more tokens than the context; the message says the numbers
  kIoError,            ///< the operating system refused
  kCancelled,          ///< the caller asked to stop
  kInternal,           ///< a bug in varve
};

/// Short lower-case name of a code, e.g. "invalid argument".
const char* status_code_name(StatusCode code);

/// Success, or a code and one line of text with the numbers in it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

inline Status invalid_argument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
inline Status not_found(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status corrupt(std::string m) { return {StatusCode::kCorrupt, std::move(m)}; }
inline Status resource_exhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
inline Status context_overflow(std::string m) { return {StatusCode::kContextOverflow, std::move(m)}; }
inline Status io_error(std::string m) { return {StatusCode::kIoError, std::move(m)}; }
inline Status internal_error(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

}  // namespace varve
