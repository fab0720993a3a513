// Figures out of samples, for the benchmarks.
#pragma once

#include <vector>

namespace megalith::tools {

double mean(const std::vector<double>& samples);
/// Of the population that the samples are from (n - 1); 0 of a single one.
double standard_deviation(const std::vector<double>& samples);
/// `percent` from 0 to 100, between two samples on the line through them; 0 without samples.
double percentile(std::vector<double> samples, double percent);

}  // namespace megalith::tools
