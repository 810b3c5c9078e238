#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>
#include "ingest/number_text.hpp"
using namespace tenfold;
int main() {
  std::mt19937_64 g(7);
  long bad = 0;
  std::vector<std::string> keep;
  for (long i = 0; i < 3000000; ++i) {
    std::uint64_t d = g();
    int nd = 1 + g() % 19;
    std::string s;
    for (int k = 0; k < nd; ++k) s += char('0' + (k == 0 && nd > 1 ? 1 + g() % 9 : g() % 10));
    int mode = g() % 4;
    std::string t;
    if (mode == 0) {
      int p = g() % (nd) + 0;
      if (p == 0) p = 1;
      t = s.substr(0, p) + "." + (p < nd ? s.substr(p) : "0");
    } else if (mode == 1) {
      t = "0." + std::string(g() % 9, '0') + s;
    } else if (mode == 2) {
      t = s + "e-" + std::to_string(g() % 27);
    } else {
      double x;
      std::uint64_t b = ((1023ull - 40 + g() % 60) << 52) | (g() >> 12);
      std::memcpy(&x, &b, 8);
      char buf[64];
      if (g() % 2)
        snprintf(buf, 64, "%.17g", x);
      else {  // midpoint
        long double m = (long double)x;
        std::uint64_t nb = b + 1;
        double y;
        std::memcpy(&y, &nb, 8);
        m = (m + (long double)y) / 2;
        snprintf(buf, 64, "%.*Lg", 17 + (int)(g() % 3), m);
      }
      t = buf;
    }
    if (g() % 2) t = "-" + t;
    t += ",";
    t.append(16, '\0');
    NumberText n;
    if (!scan_number(t.c_str(), NumberStyle::json, n)) {
      printf("no %s\n", t.c_str());
      ++bad;
      continue;
    }
    if (*n.end != ',') {
      printf("end %s\n", t.c_str());
      ++bad;
    }
    double a = to_double(n), e = strtod(t.c_str(), nullptr);
    if (std::memcmp(&a, &e, 8)) {
      if (++bad < 10) printf("%s %.17g %.17g\n", t.c_str(), a, e);
    }
  }
  printf("bad %ld\n", bad);
  // exact middles with few digits
  for (int p = 1; p <= 27; ++p) {
    std::uint64_t five = 1;
    for (int k = 0; k < p && k < 27; ++k) five *= 5;
    for (long j = 0; j < 20000; ++j) {
      std::uint64_t m = (g() >> 10) | 1ull << 53 | 1; /*54 bits odd*/
      __extension__ unsigned __int128 w = (unsigned __int128)m * five;
      while (w >> 64 && 0) {
      }
      if (w >> 63 >> 1) break;
      std::string s = std::to_string((unsigned long long)w);
      std::string t = s + "e-" + std::to_string(p) + "," + std::string(16, '\0');
      NumberText n;
      scan_number(t.c_str(), NumberStyle::json, n);
      double a = to_double(n), e = strtod(t.c_str(), nullptr);
      if (a != e) {
        if (++bad < 20) printf("mid %s\n", t.c_str());
      }
    }
  }
  printf("bad %ld\n", bad);
  std::vector<std::string> v;
  for (int i = 0; i < 1000; ++i) {
    char b[64];
    snprintf(b, 64, "%.17g,", std::uniform_real_distribution<>(0, 1000)(g));
    v.push_back(std::string(b) + std::string(16, '\0'));
  }
  auto t0 = std::chrono::steady_clock::now();
  double sum = 0;
  for (int r = 0; r < 20000; ++r)
    for (auto& s : v) {
      NumberText n;
      scan_number(s.c_str(), NumberStyle::json, n);
      sum += to_double(n);
    }
  printf("%f ns %g\n",
         std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count() / 20e6 * 1e9,
         sum);
}
