#include "common/job_spec/http_url.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(HttpUrlTest, TakesAUrlApart) {
  EXPECT_EQ(ParseHttpUrl("http://Host/a/b?c").value(), (HttpUrl{"http", "host", 80}));
  EXPECT_EQ(ParseHttpUrl("https://host.example").value(), (HttpUrl{"https", "host.example", 443}));
  EXPECT_EQ(ParseHttpUrl("https://10.0.0.1:8443?c").value(), (HttpUrl{"https", "10.0.0.1", 8443}));
  EXPECT_EQ(ParseHttpUrl("http://[FD00::1]:81/x").value(), (HttpUrl{"http", "fd00::1", 81}));
}

TEST(HttpUrlTest, RefusesWhatReadersOfUrlsTakeApartInDifferentWays) {
  for (const char* bad : {"",
                          "host",
                          "ftp://host/",
                          "HTTP://host/",
                          "http://",
                          "http:///x",
                          "http://host:/",
                          "http://host:0/",
                          "http://host:65536/",
                          "http://host:8x/",
                          "http://host:+80/",
                          "http://user@host/",
                          "http://a:b@host/",
                          "http://good\\@evil/",
                          "http://host /",
                          "http://host/\n",
                          "http://ho%73t/",
                          "http://[::1/",
                          "http://[::1]x/",
                          "http://[]/",
                          "http://[fe80::1%25eth0]/",
                          "http://::1/",
                          "http://a,b/",
                          "http://h\xC3\xB6st/"})
    EXPECT_FALSE(ParseHttpUrl(bad).ok()) << bad;
}

}  // namespace
}  // namespace muster
