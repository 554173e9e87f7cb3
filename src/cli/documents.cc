#include "cli/documents.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "engine/text_stream.h"

namespace varve::cli {

Result<std::string> read_text(const std::string& path) {
  std::stringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
  } else {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      const std::string why = path + ": " + std::strerror(errno);
      return errno == ENOENT ? not_found(why) : io_error(why);
    }
    if (file.peek() == std::ifstream::traits_type::eof()) {
      if (!file.eof()) return io_error(path + ": cannot be read (a directory?)");
      return std::string();
    }
    text << file.rdbuf();
    if (file.bad()) return io_error(path + ": reading failed");
  }
  std::string out = std::move(text).str();
  if (const size_t bad = engine::find_invalid_utf8(out); bad != std::string::npos) {
    return invalid_argument(path + " is not UTF-8: byte " + std::to_string(bad) + " of " + std::to_string(out.size()) +
                            " is 0x" + "0123456789abcdef"[static_cast<unsigned char>(out[bad]) >> 4] +
                            "0123456789abcdef"[static_cast<unsigned char>(out[bad]) & 15]);
  }
  return out;
}

std::string join_documents(std::span<const std::string> texts, const std::string& question) {
  std::string out;
  for (const std::string& text : texts) {
    if (!out.empty()) out += "\n\n";
    out += text;
  }
  if (!question.empty()) out += (out.empty() ? "" : "\n\n") + question;
  return out;
}

Result<std::vector<std::string>> read_lines(const std::string& path) {
  auto text = read_text(path);
  if (!text.ok()) return text.status();
  std::vector<std::string> lines;
  std::istringstream in(*text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) lines.push_back(line);
  }
  if (lines.empty()) return invalid_argument(path + " holds no line of text");
  return lines;
}

}  // namespace varve::cli
