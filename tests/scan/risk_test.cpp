#include "scan/risk.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tenfold {
namespace {

using Globals = std::vector<std::pair<const char*, const char*>>;

void expect_all(const Globals& globals, ScanRisk risk) {
  for (const auto& [module, name] : globals) {
    EXPECT_EQ(risk_of_global(module, name), risk) << module << "." << name;
  }
}

TEST(ScanRisk, GlobalsOfTensorCheckpointsAreSafe) {
  expect_all({{"collections", "OrderedDict"},
              {"torch", "float32"},
              {"torch", "per_tensor_affine"},
              {"torch", "FloatStorage"},
              {"torch.cuda.sparse", "HalfTensor"},
              {"torch._utils", "_rebuild_tensor_v2"},
              {"numpy", "ndarray"},
              {"numpy.dtypes", "Float64DType"},
              {"builtins", "set"},
              {"__builtin__", "unicode"}},
             ScanRisk::safe);
}

TEST(ScanRisk, GlobalsThatRunCodeAreDangerous) {
  expect_all({{"os", "system"},
              {"os.path", "join"},
              {"torch.hub", "load"},
              {"builtins", "eval"},
              {"__builtin__", "getattr"},
              {"numpy", "load"},
              {"numpy.f2py", "compile"}},
             ScanRisk::dangerous);
}

TEST(ScanRisk, NamesThatLeadOutOfTheirModuleAreDangerous) {
  expect_all({{"collections", "_sys.modules"},
              {"numpy.dtypes", "sys.DType"},
              {"torch", "os.FloatStorage"},
              {"my_net", "__import__"}},
             ScanRisk::dangerous);
}

TEST(ScanRisk, OtherNamesAreSuspicious) {
  expect_all({{"my_net", "Net"},
              {"torch", "_evil_Storage"},
              {"other", "FloatStorage"},
              {"osmosis", "pump"}},
             ScanRisk::suspicious);
}

}  // namespace
}  // namespace tenfold
