#include "cli/base/standard_output.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <sstream>

namespace muster {
namespace {

// A disk with room for some characters only.
struct FullDisk : std::streambuf {
  explicit FullDisk(int room) : room(room) {}
  int_type overflow(int_type c) override {
    if (room-- > 0) return c;
    errno = ENOSPC;
    return traits_type::eof();
  }
  int room;
};

TEST(StandardOutput, SaysWhyTheOutputCouldNotBeWritten) {
  for (const char* text : {"some text", "x"}) {
    FullDisk disk(0);
    std::ostream out(&disk);
    StandardOutput output(out);
    out << text << 7;
    errno = 0;
    EXPECT_EQ(output.Finish(), "could not write the output: No space left on device");
  }
}

TEST(StandardOutput, KeepsTheFirstReasonHoweverMuchFollows) {
  FullDisk disk(3);
  std::ostream out(&disk);
  StandardOutput output(out);
  out << "some";
  errno = EINTR;
  out << " text";
  EXPECT_EQ(output.Finish(), "could not write the output: No space left on device");
}

TEST(StandardOutput, PassesAllOnAndPutsTheBufferBack) {
  std::stringbuf text;
  std::ostream out(&text);
  {
    StandardOutput output(out);
    out << "all " << 1.5 << '\n';
    EXPECT_EQ(output.Finish(), "");
  }
  EXPECT_EQ(out.rdbuf(), &text);
  EXPECT_EQ(text.str(), "all 1.5\n");
}

}  // namespace
}  // namespace muster
