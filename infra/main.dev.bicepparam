// For trying and for tests: pay per use, no network, one zone.
using 'main.bicep'

var emails = readEnvironmentVariable('ALERT_EMAILS', '')
// A pipeline sets a variable that nobody gave to nothing.
var audience = readEnvironmentVariable('AUTH_AUDIENCE', '')

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME', 'weft-dev')
param location = readEnvironmentVariable('AZURE_LOCATION', 'westeurope')
param durableBackend = readEnvironmentVariable('DURABLE_BACKEND', 'storage')
param authAudience = empty(audience) ? 'api://weft' : audience
param principalId = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
param budgetAmount = 200
param budgetStart = readEnvironmentVariable('BUDGET_START', '')
param alertEmails = empty(emails) ? [] : split(emails, ',')
