#pragma once

#include <cstddef>
#include <string>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/tree/node.hpp"

namespace tenfold {

/// Counts one level of recursion during its lifetime. The constructor throws
/// Error(invalid_argument) if the level is more than kMaxDepth below the first, so that a tree that
/// contains itself cannot overflow the stack.
class Depth {
 public:
  explicit Depth(std::size_t& levels) : levels_(levels) {
    if (levels_ > kMaxDepth) {
      throw base::invalid_argument()
          .problem("nested too deep")
          .expected("at most ", kMaxDepth, " levels")
          .found("more")
          .remedy("check whether a node contains itself");
    }
    ++levels_;
  }
  ~Depth() { --levels_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  std::size_t& levels_;
};

}  // namespace tenfold
