#include "worker/process/secret_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster {
namespace {

TEST(SecretFile, HasWhatWasPutIntoItAndCannotBeChanged) {
  const RankSecrets secrets{.variables = {{"HF_TOKEN", "hf_\xff\n"}},
                            .files = {{"KEY", std::string(70'000, 'k')}}};
  const UniqueFd file = *MakeSecretFile(secrets);
  for (int i = 0; i < 2; ++i) {
    const RankSecrets read = *ReadSecretFile(file.get());
    EXPECT_EQ(read.variables, secrets.variables);
    EXPECT_EQ(read.files, secrets.files);
  }
  EXPECT_NE(::pwrite(file.get(), "x", 1, 0), 1);
  EXPECT_NE(::ftruncate(file.get(), 0), 0);
  struct stat mode {};
  ASSERT_EQ(::fstat(file.get(), &mode), 0);
  EXPECT_EQ(mode.st_mode & 0777, 0400u);
}

TEST(SecretFile, WhatIsNoneIsRefused) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd read(ends[0]);
  const UniqueFd write(ends[1]);
  EXPECT_FALSE(ReadSecretFile(read.get()).ok());
}

TEST(SecretFile, AProcessInheritsVariablesAndFiles) {
  SpawnOptions options;
  const auto files =
      AddSecrets({.variables = {{"A", "1"}}, .files = {{"B", "two"}, {"C", "3"}}}, 200, &options);
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(options.environment,
            (std::vector<std::string>{"A=1", "B=/proc/self/fd/200", "C=/proc/self/fd/201"}));
  ASSERT_EQ(options.inherited.size(), 2u);
  char content[8] = "";
  EXPECT_EQ(::read((*files)[0].get(), content, sizeof content), 3);
  EXPECT_STREQ(content, "two");
}

}  // namespace
}  // namespace muster
