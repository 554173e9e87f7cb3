#pragma once
// The packing of bible-kjv-text: a text in windows, each an LZW stream of compress(1) without its header, behind an
// index.

#include <filesystem>

#include "cli/child.h"
#include "varve/status.h"

namespace varve::cli {

/// Writes the text of `packed` to `plain`. gzip(1) unpacks the streams, as files in child.directory.
/// Layout, all numbers 32 bits, the highest byte first: a title of 80 bytes that begins with "EC02"; 0; the bytes of an
/// unpacked window; the number of windows n; n + 1 offsets, of each window and of the file's end; the three bytes that
/// every stream lacks; the streams.
/// @return kCorrupt, with the numbers, for another layout; what gzip or the system say
Status unpack_windows(const std::filesystem::path& packed, const std::filesystem::path& plain,
                      const ChildOptions& child);

}  // namespace varve::cli
