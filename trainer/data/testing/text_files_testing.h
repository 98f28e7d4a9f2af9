// A tokenizer of bytes and files of rows, for tests of what reads them. Header of tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/text/tokenizer/byte_alphabet.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

// One id per byte, its value; no tokens of chat templates.
inline std::string ByteTokenizerJson() {
  std::string vocab;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string& spelling = ByteAlphabet()[byte];
    vocab += (byte == 0 ? "\"" : ",\"") +
             (byte == '"' || byte == '\\' ? "\\" + spelling : spelling) +
             "\":" + std::to_string(byte);
  }
  return R"({"model": {"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "decoder": {"type": "ByteLevel"}})";
}

inline Tokenizer ByteTokenizer() {
  auto tokenizer = Tokenizer::Parse(ByteTokenizerJson(), "bytes");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

// Rows of plain text of `least` to `least` + 36 letters, distinguished by their number.
inline std::string NumberedRows(int first, int count, int least = 8) {
  std::string rows;
  for (int i = first; i < first + count; ++i)
    rows += "{\"text\": \"" + std::to_string(i) + " " +
            std::string(static_cast<std::size_t>(least + i * 7 % 37), 'a') + "\"}\n";
  return rows;
}

// The ids of a row, with the trained ones negated less one: equal rows give equal lists.
inline std::vector<std::int64_t> RowOf(const Dataset& dataset, std::int64_t row) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(dataset.Length(row)));
  std::vector<std::int64_t> labels(ids.size());
  const Status read = dataset.Read(row, ids, labels);
  EXPECT_TRUE(read.ok()) << read.ToString();
  for (std::size_t t = 1; t < ids.size(); ++t)
    if (labels[t - 1] != kIgnoredLabel) ids[t] = -1 - labels[t - 1];
  return ids;
}

inline std::vector<std::vector<std::int64_t>> RowsOf(const Dataset& dataset) {
  std::vector<std::vector<std::int64_t>> rows;
  for (std::int64_t row = 0; row < dataset.size(); ++row) rows.push_back(RowOf(dataset, row));
  return rows;
}

}  // namespace muster
