#include "model/ggml_guard.h"

#include <llama.h>
#include <log.h>

#include <cstdio>
#include <mutex>
#include <new>
#include <stdexcept>

namespace varve::model {
namespace {

/// Thrown through ggml's frames by the abort hook; C frames on this ABI carry unwind tables.
struct AssertionFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Enough for the few lines that explain a refusal, whatever a broken file makes libllama log.
constexpr size_t kMostLogBytes = 4096;

thread_local std::string* collector = nullptr;
ggml_abort_callback_t previous_abort_hook = nullptr;

std::string one_line(const char* text) {
  std::string line;
  for (const char* p = text; *p != '\0'; ++p) line += *p == '\n' || *p == '\r' ? ' ' : *p;
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

void on_log(ggml_log_level level, const char* text, void*) {
  if (collector == nullptr || level != GGML_LOG_LEVEL_ERROR || collector->size() >= kMostLogBytes) return;
  const std::string line = one_line(text);
  if (line.empty()) return;
  if (!collector->empty()) *collector += "; ";
  *collector += line;
}

void on_abort(const char* message) {
  if (collector != nullptr) throw AssertionFailure(one_line(message));
  // Outside guarded() ggml ends the process when this returns; the reason must not be lost with it.
  if (previous_abort_hook != nullptr) {
    previous_abort_hook(message);
  } else {
    std::fprintf(stderr, "%s\n", message);
  }
}

}  // namespace

void install_ggml_hooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(on_log, nullptr);
    common_log_set_verbosity_thold(-1);  // the common library's own log would go to stderr
    previous_abort_hook = ggml_set_abort_callback(on_abort);
  });
}

Status detail::guarded(const std::string& what, Status (*call)(void*), void* fn) {
  install_ggml_hooks();
  std::string log;
  std::string* const outer = collector;
  collector = &log;
  struct Restore {
    std::string* outer;
    ~Restore() { collector = outer; }
  } restore{outer};
  const auto with_log = [&](const std::string& reason) {
    return what + ": " + (log.empty() ? reason : reason + "; " + log);
  };
  try {
    return call(fn);
  } catch (const AssertionFailure& e) {
    return corrupt(with_log(std::string("failed assertion ") + e.what()));
  } catch (const std::bad_alloc&) {
    return resource_exhausted(with_log("out of memory"));
  } catch (const std::exception& e) {
    return invalid_argument(with_log(e.what()));
  } catch (...) {
    return internal_error(with_log("unknown exception"));
  }
}

std::string guarded_log() { return collector == nullptr ? std::string() : *collector; }

}  // namespace varve::model
