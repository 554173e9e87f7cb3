#include "varve/status.h"

namespace varve {

const char* status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kContextOverflow:
      return "context overflow";
    case StatusCode::kIoError:
      return "i/o error";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

}  // namespace varve
