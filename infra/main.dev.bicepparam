// For trying and for tests: pay per use, no network, one zone.
using 'main.bicep'

var emails = readEnvironmentVariable('ALERT_EMAILS', '')

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME', 'weft-dev')
param location = readEnvironmentVariable('AZURE_LOCATION', 'westeurope')
param durableBackend = readEnvironmentVariable('DURABLE_BACKEND', 'storage')
param authAudience = readEnvironmentVariable('AUTH_AUDIENCE', 'api://weft')
param principalId = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
param budgetAmount = 200
param budgetStart = readEnvironmentVariable('BUDGET_START', '')
param alertEmails = empty(emails) ? [] : split(emails, ',')
