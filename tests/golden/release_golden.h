// What releases have written: messages, packets and files below tests/golden/vX.Y.Z, which every
// later build that reads that release must read as they were meant.
//
// A test writes the values of its factory once, for a release (make_release_golden.py sets
// MUSTER_GOLDEN_OUT), and from then on compares what this build reads there with the factory.
// A value that a release adds is set by the factory for that release and later ones alone. Tests
// only; one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"

namespace muster::golden {

// Where this run writes; empty: it compares.
inline std::string OutDirectory() {
  const char* const out = std::getenv("MUSTER_GOLDEN_OUT");
  return out == nullptr ? "" : out;
}

inline std::vector<std::string> Releases() {
  if (!OutDirectory().empty()) return {OutDirectory()};
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(MUSTER_SOURCE_DIR "/tests/golden")) {
    if (entry.is_directory() && entry.path().filename().string().starts_with("v"))
      found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  EXPECT_FALSE(found.empty());
  return found;
}

// Once per release: `write` in a run that writes, then `check`.
template <typename Write, typename Check>
void ForEachRelease(Write write, Check check) {
  for (const std::string& release : Releases()) {
    SCOPED_TRACE(release);
    if (release == OutDirectory()) write(release);
    check(release);
  }
}

inline void WriteText(const std::string& path, std::string_view text) {
  const auto written = WriteFileAtomically(path, std::string(text));
  EXPECT_TRUE(written.ok()) << written.ToString();
}

inline std::string ReadText(const std::string& path) {
  const auto text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? *text : "";
}

inline std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return hex;
}

inline std::string Unhex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// A file of one JSON value per line.
inline void WriteLines(const std::string& path, const std::vector<nlohmann::ordered_json>& lines) {
  std::string text;
  for (const auto& line : lines) text += line.dump() + "\n";
  WriteText(path, text);
}

inline std::vector<nlohmann::ordered_json> ReadLines(const std::string& path) {
  std::vector<nlohmann::ordered_json> lines;
  const std::string text = ReadText(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(nlohmann::ordered_json::parse(text.substr(begin, end - begin)));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  EXPECT_FALSE(lines.empty()) << path;
  return lines;
}

}  // namespace muster::golden
