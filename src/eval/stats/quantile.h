#pragma once
// Quantiles of the normal and Student's t distribution.

namespace varve::eval {

/// z with P(Z <= z) = p, 0 < p < 1.
double normal_quantile(double p);

/// P(T <= t) for `freedom` degrees of freedom, through the regularised incomplete beta function.
double student_t_cdf(double t, double freedom);

/// t with P(T <= t) = p, 0 < p < 1.
double student_t_quantile(double p, double freedom);

}  // namespace varve::eval
