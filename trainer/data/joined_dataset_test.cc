#include "trainer/data/joined_dataset.h"

#include <gtest/gtest.h>

#include "common/base/testing/temp_dir.h"
#include "trainer/data/testing/text_files_testing.h"
#include "trainer/data/token_dataset.h"

namespace muster {
namespace {

TEST(JoinedDataset, ItsRowsAreThoseOfTheFilesOneAfterTheOther) {
  const TempDirForTest dir;
  const auto open = [&](const std::string& name, int ids, char first) {
    std::string bytes;
    for (int i = 0; i < ids; ++i) bytes += std::string{static_cast<char>(first + i), '\0'};
    auto part = TokenDataset::Open(dir.Write(name, bytes), {.max_seq_len = 3, .vocab_size = 100});
    EXPECT_TRUE(part.ok()) << part.status().ToString();
    return std::make_unique<const TokenDataset>(*std::move(part));
  };
  std::vector<std::unique_ptr<const Dataset>> parts;
  parts.push_back(open("a.bin", 6, 1));
  parts.push_back(open("b.bin", 4, 20));
  parts.push_back(open("c.bin", 3, 40));
  const JoinedDataset joined(std::move(parts));
  ASSERT_EQ(joined.size(), 4);
  EXPECT_EQ(RowsOf(joined), (std::vector<std::vector<std::int64_t>>{
                                {1, -3, -4}, {4, -6, -7}, {20, -22, -23}, {40, -42, -43}}));
  EXPECT_EQ(joined.stats(),
            (DatasetStats{.rows = 4, .tokens = 12, .label_tokens = 8, .trailing_tokens = 1}));
  const std::vector<std::int64_t> rows = {3, 0, 1};
  EXPECT_EQ(joined.Describe(rows), "rows 0-1 of a.bin, row 0 of c.bin");
}

}  // namespace
}  // namespace muster
