#include "cli/base/output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace muster {
namespace {

std::string Printed(OutputFormat format, const Json& value) {
  std::ostringstream out;
  EXPECT_TRUE(PrintStructured(out, format, value, "id"));
  return out.str();
}

TEST(HumanBytes, ChoosesItsUnit) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(3ull << 30), "3.0 GiB");
  EXPECT_EQ(HumanBytes(~0ull), "16384.0 PiB");
}

TEST(Table, AlignsColumnsWithoutTrailingBlanks) {
  Table table({"ID", "STATE", "N"});
  table.Add({"a", "running", "1"});
  table.Add({"long-id", "", ""});
  table.Add({"b", "", "2"});
  std::ostringstream out;
  table.Print(out, /*color=*/false);
  EXPECT_EQ(out.str(),
            "ID       STATE    N\n"
            "a        running  1\n"
            "long-id\n"
            "b                 2\n");
}

TEST(Table, ColoursStatesOnlyWhereAllowed) {
  Table table({"STATE", "N"});
  table.Add({"failed", "1"});
  std::ostringstream out;
  table.Print(out, /*color=*/true);
  EXPECT_EQ(out.str(), "STATE   N\n\x1b[31mfailed\x1b[0m  1\n");
}

TEST(PrintStructured, ReadsEveryFormat) {
  const Json list = {{{"id", "a"}, {"n", 1}}, {{"id", "b"}, {"n", nullptr}}};
  EXPECT_EQ(Printed(OutputFormat::kJsonl, list),
            "{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\",\"n\":null}\n");
  EXPECT_EQ(Printed(OutputFormat::kName, list), "a\nb\n");
  EXPECT_EQ(Printed(OutputFormat::kYaml, list),
            "-\n  id: a\n  \"n\": 1\n-\n  id: b\n  \"n\": null\n");
  EXPECT_EQ(Json::parse(Printed(OutputFormat::kJson, list)), list);
  EXPECT_EQ(Printed(OutputFormat::kName, list[0]), "a\n");
  std::ostringstream out;
  EXPECT_FALSE(PrintStructured(out, OutputFormat::kTable, list, "id"));
  EXPECT_FALSE(PrintStructured(out, OutputFormat::kWide, list, "id"));
  EXPECT_EQ(out.str(), "");
}

TEST(ToYaml, QuotesWhatYamlWouldReadAsAnotherType) {
  EXPECT_EQ(ToYaml({{"a", "true"}, {"b", "1"}, {"c", "x: y"}, {"d", Json::array()}, {"e", "/p/q"}}),
            "a: \"true\"\nb: \"1\"\nc: \"x: y\"\nd: []\ne: /p/q\n");
}

TEST(Words, TimesAndNumbers) {
  EXPECT_EQ(HumanSeconds(-1), "-");
  EXPECT_EQ(HumanSeconds(0.44), "0.4s");
  EXPECT_EQ(HumanSeconds(9.96), "10s");
  EXPECT_EQ(HumanSeconds(65), "1m 05s");
  EXPECT_EQ(HumanSeconds(7380), "2h 03m");
  EXPECT_EQ(HumanSeconds(200'000), "2d 07h");
  EXPECT_EQ(HumanSeconds(std::nan("")), "-");
  EXPECT_EQ(PreciseSeconds(0.305), "0.30 s");
  EXPECT_EQ(Fixed(1e300, 0).size(), 301u);
  EXPECT_EQ(Fixed(std::nan(""), 2), "nan");
  EXPECT_EQ(IsoTime(1'700'000'000'007), "2023-11-14T22:13:20.007Z");
  EXPECT_EQ(LocalTime(0), "-");
}

TEST(Printable, TakesTheTerminalsCommandsAway) {
  EXPECT_EQ(Printable("a\x1b[2J\nb\x7f"), "a?[2J?b?");
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "2Jb"),
            "a?2Jb")
      << "the same command in one character";
  EXPECT_EQ(Printable("a\x9b"
                      "2Jb\xe2\x82"),
            "a?2Jb??")
      << "no characters";
}

TEST(Printable, LeavesTextsAsTheyAre) {
  EXPECT_EQ(Printable("Größe 3 µm, 日本 🙂\xc2\xa0!"),
            "Größe 3 µm, 日本 🙂\xc2\xa0!");
  EXPECT_EQ(Printable("b\tc"), "b c") << "which has a column of its own";
}

TEST(LossText, ARunawayLossIsShort) {
  EXPECT_EQ(LossText(2.34567, 3), "2.346");
  EXPECT_EQ(LossText(1e30, 3), "1.000e+30");
  EXPECT_EQ(LossText(-1e308, 4), "-1.000e+308");
  EXPECT_EQ(LossText(NAN, 4), "nan");
}

}  // namespace
}  // namespace muster
